"""``convgrad verify``: judge the results of any implementation for any number of cases, and write reports for CI."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from convgrad.array_types import Array
from convgrad.cli.arguments import limits_of
from convgrad.cli.console import complain_of as _complain_of
from convgrad.cli.console import say, wrote
from convgrad.cli.exits import DONE, FILE, UsageError, ended_as_by_ctrl_c, is_about_a_file, meaning
from convgrad.cli.progress import ProgressLine
from convgrad.cli.verify_again import reproducer
from convgrad.cli.verify_candidates import Candidate, candidate_of, declared_of, name_of, of_type
from convgrad.cli.verify_cases import UnreadSources, cases_of, generated, pose
from convgrad.cli.verify_options import VerifyOptions, check_for, checked, sample_of
from convgrad.cli.verify_others import OTHERS
from convgrad.cli.verify_report import Judged, counts, estimate, exit_code, explains_exit, in_words, junit, summary
from convgrad.cli.verify_resume import JunitReport, earlier
from convgrad.disk import written
from convgrad.engines.settings import threads
from convgrad.errors import ConvgradError
from convgrad.graph.limits import Limits
from convgrad.verify.cases.case import Case
from convgrad.verify.check import verdicts_of
from convgrad.verify.repeat import verdict_on_calls
from convgrad.verify.verdict import NOT_SERVED, OK, Verdict


@ended_as_by_ctrl_c()
def main(parsed: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    options = checked(parsed)
    limits, unread = limits_of(options.limit), UnreadSources()
    with _reported(options, unread):
        cases = cases_of(options, limits, unread)
        check_for(options, len(cases))
    _complain_of([f"{error}" for error in unread.refused], "more that cannot be read (--json lists all)")
    _complain_of([f"passed over {error}" for error in unread.passed_over], "more files with parts that are passed over")
    notes = dict.fromkeys(f"warning: {case.place}: {case.note}" for case in cases if case.note)
    _complain_of([*notes], "more such pads")
    with nullcontext() if options.threads is None else threads(options.threads):
        other = next((run for name, run in OTHERS.items() if getattr(options, name) is not None), None)
        code = other(options, cases, limits) if other else _verify(options, cases, limits, unread)
    if other:
        _complain_of_empty(unread)
    return code or (FILE if unread.refused or (options.strict and unread.empty) else DONE)


@contextmanager
def _reported(options: VerifyOptions, unread: UnreadSources) -> Iterator[None]:
    """Write the report for CI if an error ends the command before the first case; the error is in the report."""
    try:
        yield
    except (ConvgradError, OSError, UsageError) as error:
        if options.junit is not None and not options.resume:
            with suppress(ConvgradError, OSError):  # the first error is the one to print
                with written(Path(options.junit), options.force) as file:
                    file.write(junit([], 0, 0.0, list(map(str, unread.refused)) or [str(error)]))
                wrote(options.junit)
        raise


def _complain_of_empty(unread: UnreadSources) -> None:
    messages = [f"passed over {error}" for error in unread.empty]
    _complain_of(messages, "more files that are passed over (--json lists all)")


def _verify(options: VerifyOptions, cases: Sequence[Case], limits: Limits, unread: UnreadSources) -> int:
    """Judge each case, print cases that are not ok immediately and the counts at the end; return the exit code."""
    with ExitStack() as stack:
        with _reported(options, unread):
            done = earlier(options, cases)
            candidate = stack.enter_context(candidate_of(options, limits))
        progress = stack.enter_context(ProgressLine("", options.json, heartbeat=True))
        report = JunitReport(options, cases, list(map(str, unread.refused)))
        if not options.json:
            before = f"; {len(done)} of them before, in {options.junit}" * bool(done)
            say(f"{len(cases)} case{'s' * (len(cases) != 1)}; judged: {name_of(options)}{before}")
        names, outcomes = {judged.case.name for judged in done}, {judged.outcome for judged in done}
        try:
            for judged in judge_all(
                options, [case for case in cases if case.name not in names], limits, candidate, progress
            ):
                done.append(judged)
                report.save(done, often=True)
                if options.json:
                    progress.say(json.dumps(judged.values()))
                elif (
                    options.verbose
                    or len(cases) == 1
                    or judged.outcome not in (OK, NOT_SERVED)
                    or explains_exit(judged, outcomes, options.strict)
                ):
                    progress.say(judged.lines())
                outcomes.add(judged.outcome)
        finally:  # an interrupted run prints its counts and writes its report too
            progress.end()
            report.save(done)
            _close(options, done, len(cases), unread, report.seconds)
    return exit_code(done, options.strict)


def judge_all(
    options: VerifyOptions, cases: Sequence[Case], limits: Limits, candidate: Candidate, progress: ProgressLine
) -> Iterator[Judged]:
    """Yield the outcome of each case, and show the progress and the counts so far."""
    outcomes = Counter[str]()
    for number, case in enumerate(cases):
        label = f"{number}/{len(cases)} {in_words(outcomes)}"
        progress.relabel(label)
        progress(number / len(cases))
        part = progress.part(number, len(cases), f"{label} (sums done, looking at the errors)")
        judged = judge(case, candidate, options, limits, part, shared=len(cases) > 1)
        outcomes[judged.outcome] += 1
        yield judged


def judge(
    case: Case,
    candidate: Candidate,
    options: VerifyOptions,
    limits: Limits,
    progress: Callable[[float], None],
    shared: bool = False,
) -> Judged:
    """Return the outcome of one case; an error is an outcome too, so that the other cases are still judged.

    If the declared arithmetic is ``shared`` by several cases, the declared height may exceed that of this case.
    """
    started = time.perf_counter()
    if case.unsupported:
        return Judged(case, error=case.unsupported)
    try:
        posed = pose(case, options, limits)
        sample = sample_of(options, posed.call.problem)
        _complain_of(estimate(case, posed.call.problem, sample), "")
        how = declared_of(options, posed, shared)
        times_s: list[float] = []

        def answer() -> Array | Verdict:
            result, call_s = candidate(posed)
            times_s.append(call_s)
            return of_type(result, posed)

        def judged(results: Sequence[Array | Verdict]) -> Sequence[Verdict]:
            claims = [(result, how) for result in results]
            return verdicts_of(claims, posed.call, progress=progress, sample=sample)

        verdict = verdict_on_calls(answer, options.repeat or 1, judged)
    except (ConvgradError, OSError, MemoryError) as error:
        code, words = meaning(error) or (0, "")
        took_s = time.perf_counter() - started
        again = "" if is_about_a_file(error) else reproducer(case, options)
        return Judged(case, error=words, code=code, time_s=took_s, reproduce=again)
    made_up = posed.operands == generated(options)
    again = "" if verdict.outcome in (OK, NOT_SERVED) else reproducer(case, options, not made_up)
    took_s = time.perf_counter() - started
    hint = f"generated ({posed.operands}), not read. Use --operands DIR to read yours"
    hint *= made_up and options.got is not None
    call_s = sum(times_s) / len(times_s)
    return Judged(case, name_of(options, posed), posed.operands, verdict, "", 0, took_s, call_s, again, hint)


def _close(options: VerifyOptions, done: Sequence[Judged], cases: int, unread: UnreadSources, seconds: float) -> None:
    """Print the counts, at the end of a complete or an interrupted run."""
    refused, empty = (list(map(str, errors)) for errors in (unread.refused, unread.empty))
    if options.json:
        values = {"summary": counts(done), "cases": cases, "judged": len(done), "refused": refused, "empty": empty}
        values |= {"passed_over": list(map(str, unread.passed_over))} if unread.passed_over else {}
        say(json.dumps(values | {"time_s": round(seconds, 3)}))
    elif cases > 1 or not done or refused or empty:
        say(summary(done, cases, seconds, len(refused), len(empty)))
        _complain_of_empty(unread)

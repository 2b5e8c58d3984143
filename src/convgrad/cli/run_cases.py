"""``convgrad run`` on cases: compute each case, and judge the result that is stored with it."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from convgrad import arrays
from convgrad.cli.arguments import limits_of
from convgrad.cli.console import complain, say
from convgrad.cli.exits import UsageError
from convgrad.cli.run_call import run_one
from convgrad.cli.sources import read_cases, use_cases
from convgrad.cli.verify_cases import pose
from convgrad.cli.verify_options import VerifyOptions
from convgrad.formats import F32
from convgrad.functional.call import check_options
from convgrad.graph.limits import Limits
from convgrad.verify.cases.case import Case

FOREIGN = ("inputs", "attr", "shapes", "type", "tensors", "memory", "checkpoint")


def run_cases(options: argparse.Namespace) -> int:
    """Run the command and return its exit code, which is 1 if a case did not run or a verdict is not ok."""
    foreign = [name for name in FOREIGN if getattr(options, name)]
    if foreign:
        raise UsageError(f"a case has its own operator, attributes, shapes and types; {foreign[0]} cannot go with it")
    check_options("run", None, False, options.threads)
    to = None if options.dtype is None else arrays.output_format(options.dtype, F32, "run")
    limits = limits_of(options.limit)
    cases, unread = read_cases(options.operator, limits)
    if len(cases) > 1 and (options.output or options.expect):
        raise UsageError(f"-o and --expect accept one result; {options.operator!r:.200} has {len(cases)} cases")
    ran: list[Case] = []

    def run(case: Case) -> bool:
        if case.unsupported:
            line = {"case": case.name, "skipped": case.unsupported}
            say(json.dumps(line) if options.json else f"{case.name} did not run: {case.unsupported}")
            return False
        right = _run(case if to is None else replace(case, output_format=to), options, limits)
        ran.append(case)
        return right

    code, _ = use_cases(cases, unread, run)
    if len(cases) > 1:
        summary = {"cases": len(cases), "ran": len(ran)}
        say(json.dumps(summary) if options.json else f"{len(ran)} of {len(cases)} cases ran")
    return code


def _run(case: Case, options: argparse.Namespace, limits: Limits) -> bool:
    """Run a case and return whether every verdict is ok."""
    if case.note:
        complain(f"convgrad: warning: {case.note}")
    posed = pose(case, VerifyOptions(fill=options.fill or "integers", seed=options.seed or 0), limits)
    prepared = posed.call.activated(options.activation).within(options.max_error)
    recorded = {} if posed.brought is None or posed.brought.result is None else {case.place: posed.brought.result}
    about: dict[str, str] = {"case": case.name} | ({"why": case.why} if case.why else {})
    verdicts = run_one(prepared, [posed.operands] * len(prepared.taken), options, recorded, about)
    return all(verdict.ok for verdict in verdicts)

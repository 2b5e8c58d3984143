"""The candidate: a function that returns, for each case, the result that ``convgrad verify`` judges.

The results come from a user's function, from files, from the cases themselves, or from convgrad's own engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from convgrad import engines, files
from convgrad.array_types import Array
from convgrad.cli.checks import as_kept
from convgrad.cli.verify_cases import Posed
from convgrad.cli.verify_options import VerifyOptions, declared_by
from convgrad.formats import F64, of_dtype
from convgrad.graph.limits import Limits
from convgrad.spec.layouts import shape_words
from convgrad.verify.cases import scheme
from convgrad.verify.declared import Declared
from convgrad.verify.foreign import WRONG_KIND, answer, arguments, load
from convgrad.verify.isolate import Isolated
from convgrad.verify.verdict import WRONG, Defect, Verdict
from convgrad.verify.witness import Witness

Answer = tuple[Array | Verdict, float]  # a result or a verdict, and the seconds of the call, 0 without a call
Candidate = Callable[[Posed], Answer]

OURS = "convgrad's own engine"


@contextmanager
def candidate_of(options: VerifyOptions, limits: Limits) -> Iterator[Candidate]:
    """Yield the candidate that the options select; with --isolate, its process ends at the end of the block."""
    if options.call is None:
        yield _recorded(Path(options.got), limits) if options.got is not None else _brought_or_ours
    elif options.isolate:
        with Isolated(options.call, options.timeout, options.signature) as child:
            yield lambda posed: (child.answer(*_call(posed)), child.took_s)
    else:
        function = load(options.call, options.signature)
        with Witness() as witness:

            def candidate(posed: Posed) -> Answer:
                witness.note(posed.case.name)
                return _timed(lambda: answer(function, *_call(posed)))

            yield candidate


def name_of(options: VerifyOptions, posed: Posed | None = None) -> str:
    """Return the name of the candidate for the case ``posed``, or for all cases if ``posed`` is None."""
    if options.call is not None:
        return f"{options.call} in a process of its own" if options.isolate else str(options.call)
    if options.got is not None:
        return str(options.got)
    if posed is None:
        return f"the cases' own results, else {OURS}"
    return OURS if is_ours(options, posed) else f"the result in {posed.case.place}"


def is_ours(options: VerifyOptions, posed: Posed) -> bool:
    """Return whether the judged result is that of convgrad's own engine, whose rounding depth is known."""
    return options.call is None and options.got is None and (posed.brought is None or posed.brought.result is None)


def declared_of(options: VerifyOptions, posed: Posed, shared: bool = False) -> Declared:
    """Return the declared arithmetic of a result; results of convgrad's own engine have its depth by default.

    A ``shared`` height is that of several cases.
    """
    height = options.height
    if height is None and is_ours(options, posed):
        height = engines.height(posed.call.problem)
    return declared_by(options, posed.call.problem, height, shared)


def _call(posed: Posed) -> tuple[str, tuple[object, ...], dict[str, object]]:
    return (posed.case.operator, *arguments(posed.call))


def _timed(compute: Callable[[], Array | Verdict]) -> Answer:
    started = time.perf_counter()
    result = compute()
    return result, time.perf_counter() - started


def _brought_or_ours(posed: Posed) -> Answer:
    if posed.brought is not None and posed.brought.result is not None:
        return as_kept(posed.brought.result, posed.case.output_format), 0.0
    return _timed(posed.call.execute)


def _recorded(place: Path, limits: Limits) -> Candidate:
    """Return the candidate that reads results from the folder ``place``; for a single case, ``place`` may be a file."""
    if not place.is_dir():
        return lambda posed: (as_kept(_alone(place, posed, limits), posed.case.output_format), 0.0)
    return lambda posed: (as_kept(scheme.result(place, posed.case, limits), posed.case.output_format), 0.0)


def _alone(place: Path, posed: Posed, limits: Limits) -> Array:
    if place.suffix == scheme.RAW:
        array = scheme.raw_result(place, posed.case, limits)
    else:
        array = files.read(str(place), limits.memory_bytes, posed.case.output_format)
    files.check_numbers(str(place), array, "--dtype")
    return array


def of_type(result: Array | Verdict, posed: Posed) -> Array | Verdict:
    """Return a result if it has the case's type, or the verdict that its type is wrong."""
    if isinstance(result, Verdict):
        return result
    fmt, result_format = posed.case.output_format, of_dtype(result.dtype)
    if result_format is None or result_format is fmt or (result_format is F64 and posed.case.operand_format is not F64):
        return result  # ``verdict_on`` refuses a type that no result has
    wanted = f"the result must be {fmt} {shape_words(posed.call.problem.output_shape)}, as the case says"
    said = f"{wanted}; got {result_format} {shape_words(result.shape)} (--dtype {result_format} judges it as such)"
    return Verdict(outcome=WRONG, reason=said, found=(Defect(WRONG_KIND),))

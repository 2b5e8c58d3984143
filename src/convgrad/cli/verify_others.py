"""The tasks of ``convgrad verify`` other than verdicts: to export arrays, and to print tolerances or a certificate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from convgrad.cli.console import complain, say
from convgrad.cli.exits import DONE, WRONG
from convgrad.cli.progress import ProgressLine
from convgrad.cli.verify_candidates import candidate_of, declared_of, of_type
from convgrad.cli.verify_cases import Posed, pose
from convgrad.cli.verify_options import VerifyOptions, declared_by
from convgrad.graph.limits import Limits
from convgrad.verify.cases import scheme
from convgrad.verify.cases.case import Case
from convgrad.verify.exact import exact_of
from convgrad.verify.tolerance import Tolerance, tolerance
from convgrad.verify.verdict import Verdict

Other = Callable[[VerifyOptions, Sequence[Case], Limits], int]


def _export(options: VerifyOptions, cases: Sequence[Case], limits: Limits) -> int:
    """Write the operands of each case and, on request, the correctly rounded result to files named after the case."""
    assert options.export is not None, "OTHERS chose this function by the option"
    folder, files, bare = Path(options.export), 0, 0
    with ProgressLine("export:", options.json, heartbeat=True) as progress:
        for number, case in enumerate(cases):
            progress(number / len(cases))
            if case.unsupported:
                complain(f"convgrad: {case.name} is left out: {case.unsupported}")
                bare += 1
                continue
            posed = pose(case, options, limits)
            operands = tuple(posed.call.taken.values())
            part = progress.part(number, len(cases))
            result = exact_of(posed.call, part) if options.with_references else None
            files += len(scheme.export(folder, case, operands, result, options.kind, options.force))
    exported = len(cases) - bare
    values = {"exported": exported, "files": files, "folder": str(folder)}
    say(
        json.dumps(values)
        if options.json
        else f"{exported} case{'s' * (exported != 1)} exported to {folder}, {files} files"
    )
    return DONE if exported else WRONG


def _print_tolerance(options: VerifyOptions, cases: Sequence[Case], limits: Limits) -> int:
    """Print, for each case, the tolerances that a test of another library needs if it uses numpy.allclose."""
    supported_cases = len(cases)
    with ProgressLine("", options.json, heartbeat=True) as progress:
        for number, case in enumerate(cases):
            progress.relabel(f"{number}/{len(cases)}")
            if case.unsupported:
                complain(f"convgrad: {case.name} is left out: {case.unsupported}")
                supported_cases -= 1
                continue
            posed = pose(case, options, limits)
            how = declared_by(options, posed.call.problem, options.height, shared=len(cases) > 1)
            smallest = tolerance(posed.call, how)
            progress.say(json.dumps(_values(case, posed, smallest)) if options.json else f"{case.name}  {smallest}")
    return DONE if supported_cases else WRONG


def _values(case: Case, posed: Posed, smallest: Tolerance) -> Mapping[str, object]:
    return {
        "case": case.name,
        "place": case.place,
        "operands": posed.operands,
        "atol": smallest.atol,
        "rtol": smallest.rtol,
        "elements": smallest.elements,
        "unbounded": smallest.unbounded,
        "zeros": smallest.zeros,
        "seen": dict(smallest.detections),
    }


def _element(options: VerifyOptions, cases: Sequence[Case], limits: Limits) -> int:
    """Print the certificate of one element of the result of ``cases[0]``, the only case."""
    from convgrad.verify.certificate import certificate  # noqa: PLC0415 - most runs write none

    assert options.element is not None, "OTHERS chose this function by the option"
    posed = pose(cases[0], options, limits)
    with candidate_of(options, limits) as candidate:
        result = of_type(candidate(posed)[0], posed)
    if isinstance(result, Verdict):
        say(str(result))
        return WRONG
    document = certificate(posed.call, options.element, result, declared_of(options, posed))
    say(json.dumps(document, indent=2))
    return DONE if document["conclusions"]["verdict"] == "inside" else WRONG


OTHERS: Mapping[str, Other] = {"export": _export, "print_tolerance": _print_tolerance, "element": _element}

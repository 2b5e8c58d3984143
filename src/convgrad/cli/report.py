"""The report of ``convgrad run``: the call with every attribute resolved, its time, its result and its verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from convgrad import engines
from convgrad.array_types import Array
from convgrad.cli.checks import against
from convgrad.cli.times import Times, time_words
from convgrad.functional.call import Prepared
from convgrad.scale.memory import words as bytes_words
from convgrad.scale.progress import Progress
from convgrad.spec.layouts import shape_words
from convgrad.verify.foreign import resolved
from convgrad.verify.verdict import Verdict
from convgrad.words import duration, printable

WIDTH = 14
AT_A_TIME = 1 << 20  # elements of a result that are converted to f64 at a time


def report(
    prepared: Prepared,
    sources: Mapping[str, str],
    result: Array,
    times: Times,
    verdicts: Mapping[str, Verdict],
) -> dict[str, object]:
    """Return the report as values ready for JSON; ``sources`` maps the names of the operands to their origins."""
    problem = prepared.problem
    largest, mean = _figures(result)
    return {
        "operator": problem.operator,
        "type": problem.operand_format.name,
        "operands": {
            name: {"shape": list(array.shape), "from": sources[name]} for name, array in prepared.taken.items()
        },
        "result": {"name": prepared.op.output.name, "shape": list(result.shape), "type": problem.output_format.name},
        "attributes": resolved(prepared),
        "engine": str(engines.choose(problem)),
        "height": engines.height(problem),
        **times,
        "largest": json_number(largest),
        "mean": json_number(mean),
        "checks": {source: judged(verdict) for source, verdict in verdicts.items()},
    }


def _figures(result: Array) -> tuple[float, float]:
    """Return the largest absolute value and the mean of a result, which is read block by block."""
    flat = result.reshape(-1)
    largest, total = [0.0], 0.0
    with np.errstate(all="ignore"):
        for begin in range(0, flat.size, AT_A_TIME):
            values = flat[begin : begin + AT_A_TIME].astype(np.float64)
            largest.append(float(np.abs(values).max()))
            total += float(values.sum())
    return float(np.max(largest)), total / max(1, flat.size)


def in_pieces(progress: Progress) -> dict[str, object]:
    """Return the progress of a call that is computed in parts, as values ready for JSON."""
    return {
        "number": progress.pieces,
        "resumed": progress.resumed,
        "read_bytes": progress.read_bytes,
        "waiting_ms": round(1e3 * progress.waiting_s, 3),
    }


def judged(verdict: Verdict) -> dict[str, object]:
    """Return a verdict as values ready for JSON."""
    return {
        "ok": verdict.ok,
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "where": verdict.where,
        "defects": [{"name": defect.name, "detail": defect.detail} for defect in verdict.found],
        "evidence": [
            {
                "statistic": evidence.statistic,
                "value": json_number(evidence.value),
                "threshold": json_number(evidence.threshold),
                "where": evidence.where,
            }
            for evidence in verdict.evidence
        ],
        "statistics": {name: json_number(value) for name, value in verdict.statistics.items()},
        "limits": {name: json_number(value) for name, value in verdict.limits.items()},
        "elements": verdict.elements,
        "sample": verdict.sample,
        "calls": list(verdict.calls),
        "equal": verdict.equal,
        "beyond": verdict.beyond,
        "undecided": verdict.undecided,
        "blind": verdict.blind,
        "coarse": verdict.coarse,
        "nonfinite": verdict.nonfinite,
        "share_of_bound": json_number(verdict.share),
        "worst": {
            "at": list(verdict.worst),
            "got": json_number(verdict.got),
            "expected": json_number(verdict.expected),
            "bound": json_number(verdict.bound),
        },
        "text": verdict.brief,
        "details": list(verdict.details),
    }


def as_text(report: Mapping[str, Any]) -> str:
    """Return the report as lines of text."""
    result = report["result"]
    rows = [(name, report[name]) for name in ("case", "why") if name in report]
    rows += [
        (name, f"{shape_words(operand['shape'])}  {operand['from']}") for name, operand in report["operands"].items()
    ]
    rows.append((result["name"], shape_words(result["shape"])))
    rows += [(name, _words(value)) for name, value in report["attributes"].items()]
    rows.append(("engine", f"{report['engine']}, sums of height {report['height']}"))
    rows.append(("time", time_words(report)))
    if "pieces" in report:
        rows.append(("pieces", _pieces_words(report["pieces"], report["time_ms"])))
    rows.append(("largest", f"{report['largest']}"))
    rows.append(("mean", f"{report['mean']}"))
    for source, check in report["checks"].items():
        rows += [(against(source), check["text"]), *(("", detail) for detail in check["details"])]
    if "written" in report:
        rows.append(("written", report["written"]))
    kinds = report["type"] if report["type"] == result["type"] else f"{report['type']} to {result['type']}"
    lines = [f"{report['operator']} {kinds}", *(f"  {name:{WIDTH}}  {text}".rstrip() for name, text in rows)]
    return "\n".join(printable(line, None) for line in lines)  # a file name could imitate the line of a verdict


def json_number(value: float) -> float | str:
    """Return a number rounded to nine digits; NaN and infinity, which JSON does not have, become strings."""
    return float(f"{value:.9g}") if np.isfinite(value) else str(value)


def _pieces_words(pieces: Mapping[str, Any], time_ms: float) -> str:
    number, before, read = pieces["number"], pieces["resumed"], pieces["read_bytes"]
    done = f"{number}, of which {before} were finished before" if before else f"{number}"
    rate = f", {bytes_words(int(1e3 * read / time_ms))}/s" if time_ms else ""
    return f"{done}; {bytes_words(read)} read{rate}, {duration(pieces['waiting_ms'])} waited for"


def _words(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)

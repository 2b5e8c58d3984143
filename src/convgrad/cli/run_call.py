"""One call of ``convgrad run``: compute it, judge it, write its result and print the report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from convgrad import files, formats
from convgrad.array_types import Array
from convgrad.cli.arguments import limits_of
from convgrad.cli.checks import ours, theirs, verdicts_on
from convgrad.cli.console import complain, say
from convgrad.cli.progress import ProgressLine
from convgrad.cli.report import as_text, report
from convgrad.cli.times import timed
from convgrad.errors import FileError
from convgrad.formats import Format
from convgrad.functional.call import Prepared
from convgrad.verify.verdict import Verdict


def run_one(
    prepared: Prepared,
    places: Sequence[str],
    options: argparse.Namespace,
    recorded: Mapping[str, Array] = MappingProxyType({}),
    about: Mapping[str, object] = MappingProxyType({}),
) -> list[Verdict]:
    """Run a call, print its report, write its result, and return the verdicts.

    ``places`` are the origins of the operands, and ``recorded`` are results to judge, by their place. ``about`` begins
    the report.
    """
    problem = prepared.problem
    if problem.note:
        complain(f"convgrad: warning: {problem.note}")
    claims = [theirs(place, prepared, result, None) for place, result in recorded.items()]
    if options.expect is not None:
        expected = _read(options.expect, options, problem.output_format)
        files.check_numbers(options.expect, expected, "--dtype")
        claims.append(theirs(options.expect, prepared, expected, options.height))
    if options.output:
        files.check_target(options.output, problem.output_format.dtype, options.force)
    with ProgressLine(f"{problem.operator}:", options.json):
        result, times = timed(prepared, options.threads)
    if options.check:
        claims.insert(0, ours(prepared, result))
    verdicts = verdicts_on(claims, silent=options.json)
    sources = dict(zip((port.name for port in prepared.op.operands), places, strict=False))
    summary = {**about, **report(prepared, sources, result, times, verdicts)}
    if options.output:
        files.write(options.output, result, options.force)
        summary["written"] = options.output
    say_report(summary, options)
    return list(verdicts.values())


def say_report(summary: Mapping[str, object], options: argparse.Namespace) -> None:
    """Print a report as text, or as JSON if the options ask for it."""
    say(json.dumps(summary) if options.json else as_text(summary))


def operand_format(options: argparse.Namespace) -> Format | None:
    """Return the format of operands in files that store only bits: that of --type or --dtype, or None."""
    name = options.type or options.dtype
    return formats.named(name) if name else None


def read_operand(place: str, options: argparse.Namespace) -> Array:
    """Return the operand at a place. Raise FileError if it is not of the type that --type names."""
    array = _read(place, options, operand_format(options))
    if array.ndim > 1:  # one axis may have the extents of a shape operand
        files.check_numbers(place, array, "--type")
    fmt = formats.of_dtype(array.dtype)
    if options.type is not None and fmt is not None and fmt is not formats.named(options.type):
        raise FileError(f"{place}: must be of --type {options.type}; its array is {fmt}")
    return array


def _read(place: str, options: argparse.Namespace, fmt: Format | None) -> Array:
    return files.read(place, limits_of(options.limit, ("memory_bytes",)).memory_bytes, fmt)

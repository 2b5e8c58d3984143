"""``convgrad run --memory``: one operator on files that need not fit in memory, computed in parts."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from convgrad import files, scale
from convgrad.array_types import Array
from convgrad.cli.arguments import attributes_of
from convgrad.cli.console import complain
from convgrad.cli.exits import UsageError, ended_as_by_ctrl_c
from convgrad.cli.progress import ProgressLine
from convgrad.cli.report import in_pieces, report
from convgrad.cli.run_call import operand_format
from convgrad.functional.call import Prepared, check_options, prepare
from convgrad.functional.partials import SUMMED
from convgrad.scale.source import at_place, stand_ins
from convgrad.spec.problem import Problem

ALONE = "it reads all operands at once; run it without --memory, or on a result in a file"


def check_usage(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go with --memory, and for options that need it."""
    if options.memory is None:
        if options.checkpoint is not None:
            raise UsageError("--checkpoint goes with --memory: a call that is not cut has no finished parts to store")
        return
    if not options.inputs:
        raise UsageError("--memory goes with files to read: generated operands are in memory")
    for name in ("check", "expect"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} does not go with --memory: {ALONE}")
    if options.activation:
        raise UsageError("--activation does not go with --memory: the results of parts are sums without activation")
    if options.max_error is not None:
        raise UsageError("--max-error does not go with --memory: parts are always summed directly")
    if options.checkpoint is not None and options.output and _is_same(options.checkpoint, options.output):
        raise UsageError("--checkpoint and -o must name two files: the checkpoint is removed at the end")
    if options.limit:
        raise UsageError("--limit does not go with --memory, which itself limits the arrays in memory")


def run_in_pieces(options: argparse.Namespace) -> dict[str, object]:
    """Run one operator and write its result; return the report."""
    check_options(options.operator, None, False, options.threads)
    attributes = attributes_of(options.operator, options.attr)
    operands = tuple(at_place(Path(place), operand_format(options)) for place in options.inputs)
    prepared = prepare(options.operator, stand_ins(options.operator, operands), attributes, options.dtype)
    problem = prepared.problem
    if problem.note:
        complain(f"convgrad: warning: {problem.note}")
    reports: list[scale.Progress] = []
    with (
        ended_as_by_ctrl_c(),
        _result(problem, options) as out,
        ProgressLine(f"{problem.operator}:", options.json) as progress,
    ):

        def tell(now: scale.Progress) -> None:
            reports[:] = [now]
            progress.relabel(f"{problem.operator}: {now}")
            progress(now.share)

        started = time.perf_counter()
        result: Array = scale.run(
            options.operator,
            *_full(prepared, operands),
            memory=options.memory,
            dtype=options.dtype,
            out=out,
            threads=options.threads,
            checkpoint=options.checkpoint,
            progress=tell,
            **_in_full(prepared, attributes),
        )
        time_ms = 1e3 * (time.perf_counter() - started)
    if options.output and out is None:
        files.write(options.output, result, options.force)
    sources = dict(zip((port.name for port in prepared.op.operands), options.inputs, strict=False))
    summary = report(prepared, sources, result, {"time_ms": round(time_ms, 3)}, {})
    if reports:
        summary["pieces"] = in_pieces(reports[0])
    if options.output:
        summary["written"] = options.output
    return summary


def _is_same(path: str, place: str) -> bool:
    return os.path.realpath(path) == os.path.realpath(files.split_place(place)[0])


def _full(prepared: Prepared, operands: Sequence[object]) -> list[object]:
    """Return the operands with a complete shape operand; on the command line, it may have only spatial extents."""
    shape = list(prepared.problem.output_shape)
    return [shape if port.is_shape else operand for port, operand in zip(prepared.op.operands, operands, strict=False)]


def _in_full(prepared: Prepared, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes with a complete ``output_shape``; on the command line, it may have only spatial extents."""
    shapes = {"output_shape": list(prepared.problem.output_shape)} if prepared.op.spatial_shape else {}
    return {name: shapes.get(name, value) for name, value in attributes.items()}


@contextmanager
def _result(problem: Problem, options: argparse.Namespace) -> Iterator[Array | None]:
    """Yield a map of the file into which parts of the result are written, or None if no parts are written."""
    if options.output:
        files.check_target(options.output, problem.output_format.dtype, options.force)
    if options.checkpoint is not None and not options.output and problem.solves_for not in SUMMED:
        raise UsageError(
            "--checkpoint of a forward pass or data gradient goes with -o, whose file has the finished parts"
        )
    if not options.output or problem.solves_for in SUMMED:
        yield None
        return
    shape, dtype = problem.output_shape, problem.output_format.dtype
    kept = None if options.checkpoint is None else Path(options.checkpoint)
    with files.written_in_pieces(options.output, shape, dtype, force=options.force, kept=kept) as out:
        yield out

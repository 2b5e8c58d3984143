"""``convgrad run``: compute one operator on arrays from files or on generated arrays; check and write its result."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from convgrad import files, formats, notation
from convgrad.cli.arguments import attributes_of, is_graph, read_line, shape_of, typed
from convgrad.cli.console import complain
from convgrad.cli.exits import DONE, WRONG, UsageError, is_about_a_file
from convgrad.cli.run_call import read_operand, run_one, say_report
from convgrad.cli.run_cases import run_cases
from convgrad.cli.run_graph import run_graph
from convgrad.cli.run_pieces import check_usage, run_in_pieces
from convgrad.cli.sources import is_source
from convgrad.errors import ConvgradError
from convgrad.functional.call import check_options, prepare, problem_from_shapes
from convgrad.spec.operators import find
from convgrad.verify.fill import Kind, fill
from convgrad.verify.verdict import Verdict


@dataclass(frozen=True)
class Job:
    """One operator to run, with its operands; ``places`` are the origins of the operands."""

    operator: str
    attributes: dict[str, object]
    operands: tuple[object, ...]
    places: tuple[str, ...]


def main(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        if is_graph(options.operator):
            right = run_graph(options)
        elif is_source(options.operator):
            code = run_cases(options)
            if code == WRONG:
                complain(f"reproduce: {_reproducer(options)}")
            return code
        else:
            if options.tensors:
                raise UsageError("--tensors goes with GRAPH.json")
            if options.limit and not (options.inputs or options.expect):
                raise UsageError("--limit goes with files to read")
            if options.height is not None and options.expect is None:
                raise UsageError("--height describes the sums of a result in a file; it goes with --expect FILE")
            check_usage(options)
            if options.memory is not None:
                say_report(run_in_pieces(options), options)
                return DONE
            verdicts = [verdict for job in _jobs(options) for verdict in _run(job, options)]
            right = all(verdict.ok for verdict in verdicts)
    except (ConvgradError, MemoryError) as error:
        if not is_about_a_file(error):
            error.add_note(f"reproduce: {_reproducer(options)}")
        raise
    if not right:
        complain(f"reproduce: {_reproducer(options)}")
    return DONE if right else WRONG


# -- what to run -----------------------------------------------------------------------------------------------


def _jobs(options: argparse.Namespace) -> list[Job]:
    """Return the jobs of the command line: one, or two for a problem line of direction BWD_WB."""
    made_up = options.shapes is not None
    if len(options.operator.split()) > 1:
        if options.inputs or made_up or options.attr or options.type:
            raise UsageError("a problem line stands alone: it has the shapes, the attributes and the type")
        calls = notation.calls(read_line(options.operator))
        if len(calls) > 1 and (options.output or options.expect):
            raise UsageError("BWD_WB makes two results, but -o and --expect accept one; use BWD_W")
        return [_made_up(c.operator, c.shapes, dict(c.attributes), c.format.name, options) for c in calls]
    if options.operator in ("deconv", *notation.DIRECTIONS):
        raise UsageError("a problem line is one argument: put it in quotes")
    if options.operator.endswith((*files.KINDS, "/")) or os.path.isdir(options.operator):
        raise UsageError(
            f"the operator must come before its files: convgrad run OPERATOR INPUT...; got {options.operator!r:.200}"
        )
    find(options.operator)
    if made_up == bool(options.inputs):
        raise UsageError("give either input files or --shapes")
    if not made_up and (options.fill or options.seed is not None):
        raise UsageError("--fill and --seed go with --shapes or a problem line")
    for place in options.inputs:
        if re.fullmatch(r"[(\[]?\d+([x, ]+\d+)+[)\]]?", place):
            raise UsageError(f"inputs must be files; pass shapes as attributes, such as --attr weights_shape={place}")
    attributes = attributes_of(options.operator, options.attr)
    if made_up:
        shapes = [shape_of(text) for text in options.shapes]
        return [_made_up(options.operator, shapes, attributes, options.type or "f32", options)]
    operands = tuple(read_operand(place, options) for place in options.inputs)
    return [Job(options.operator, attributes, operands, tuple(options.inputs))]


def _made_up(
    operator: str,
    shapes: Sequence[tuple[int, ...]],
    attributes: dict[str, object],
    type_name: str,
    options: argparse.Namespace,
) -> Job:
    """Return a job with generated operands in the caller's layouts; shape operands keep their values."""
    fmt = formats.FORMATS[type_name]
    op, problem = problem_from_shapes(operator, tuple(shapes), attributes, fmt, options.dtype)
    ports = op.operands[: len(shapes)]
    array_shapes = [shape for port, shape in zip(ports, shapes, strict=True) if not port.is_shape]
    kind: Kind = options.fill or "integers"
    seed: int = options.seed or 0
    array_iterator = iter(fill(problem, array_shapes, kind, seed))
    operands = tuple(
        shape if port.is_shape else next(array_iterator) for port, shape in zip(ports, shapes, strict=True)
    )
    return Job(operator, attributes, operands, tuple(f"{kind}, seed {seed}" for _ in shapes))


# -- running it ----------------------------------------------------------------------------------------------------


def _run(job: Job, options: argparse.Namespace) -> list[Verdict]:
    """Run one job, print its report, write its result, and return the verdicts that the options ask for."""
    check_options(job.operator, None, False, options.threads)
    prepared = prepare(job.operator, job.operands, job.attributes, options.dtype)
    return run_one(prepared.activated(options.activation).within(options.max_error), job.places, options)


def _reproducer(options: argparse.Namespace) -> str:
    """Return the command line that repeats this run, with the type, the fill and the seed of generated operands."""
    words = ["convgrad", "run", options.operator, *options.inputs]
    for text in options.attr:
        words += ["--attr", text]
    if options.shapes:
        words += ["--shapes", *options.shapes]
    if options.max_error is not None:
        words += ["--max-error", typed(options.max_error)]
    if options.activation:
        words += ["--activation", options.activation]
    if options.tune:
        words.append("--tune")
    if options.tensors:
        words += ["--tensors", options.tensors]
    for text in options.limit:
        words += ["--limit", text]
    read = options.inputs or options.tensors or is_source(options.operator)
    if options.fill or options.seed is not None or not read:
        words += ["--fill", options.fill or "integers", "--seed", str(options.seed or 0)]
    if options.type or options.shapes:
        words += ["--type", options.type or "f32"]
    for name in ("dtype", "threads", "memory", "checkpoint", "check", "expect", "height", "output"):
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name}", typed(value)]
    if options.force:
        words.append("--force")
    return shlex.join(words)

"""``convgrad explain``: print the ops and tensors of a graph, or how a problem line would be computed."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from convgrad import files, notation, scale
from convgrad.cli.arguments import is_graph, limits_of, read_line
from convgrad.cli.console import say
from convgrad.cli.exits import DONE, UsageError
from convgrad.cli.explain_json import of_call, of_graph
from convgrad.engines.settings import max_error
from convgrad.formats import Format
from convgrad.functional.call import problem_from_shapes
from convgrad.functional.explain import explain as explain_call
from convgrad.graph.dot import to_dot
from convgrad.graph.explain import explain
from convgrad.graph.given import by_id, formats_of
from convgrad.graph.reader import read
from convgrad.spec.chosen import DIRECT


@dataclass(frozen=True)
class Unread:
    """A stand-in for an operand or a result in a file: it has a shape and a type, but no values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, region: object) -> Any:
        raise AssertionError("planning must not read operands")

    def __setitem__(self, region: object, array: object) -> None:
        raise AssertionError("planning must not write results")


def main(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    with max_error(options.max_error or DIRECT):
        return _explain(options)


def _explain(options: argparse.Namespace) -> int:
    if not is_graph(options.what):
        _explain_line(options)
        return DONE
    if options.memory:
        raise UsageError("--memory goes with a problem line")
    limits = limits_of(options.limit)
    graph = read(options.what, limits)
    if options.tensors:
        read_in = by_id(
            graph.tensors.values(),
            files.read_all(options.tensors, limits.memory_bytes, formats_of(graph.tensors.values())),
        )
        graph = graph.with_given({t: array for t, array in read_in.items() if t not in graph.computed})
    say(json.dumps(of_graph(graph)) if options.json else to_dot(graph) if options.dot else explain(graph))
    return DONE


def _explain_line(options: argparse.Namespace) -> None:
    """Print how the calls of a problem line would be computed."""
    if options.json and options.memory:
        raise UsageError("--json describes a call that is not cut; it does not go with --memory")
    if options.tensors or options.limit or options.dot:
        raise UsageError("--tensors, --limit and --dot go with GRAPH.json")
    if len(options.what.split()) == 1:
        raise UsageError(f"what to explain is GRAPH.json or a problem line in quotes; got {options.what!r:.200}")
    for call in notation.calls(read_line(options.what)):
        attributes: dict[str, Any] = dict(call.attributes)
        name, threads = call.format.name, options.threads
        found = explain_call(call.operator, *call.shapes, operand_type=name, threads=threads, **attributes)
        say(json.dumps(of_call(found)) if options.json else str(found))
        if options.memory:
            say(_in_pieces(call.operator, call.shapes, attributes, call.format, options))


def _in_pieces(
    operator: str,
    shapes: tuple[tuple[int, ...], ...],
    attributes: dict[str, Any],
    fmt: Format,
    options: argparse.Namespace,
) -> str:
    """Return a text that describes how a call on files would be cut into parts whose arrays fit in memory."""
    op, problem = problem_from_shapes(operator, shapes, attributes, fmt)
    ports = zip(op.operands, shapes, strict=False)
    operands = [shape if port.is_shape else Unread(shape, fmt.dtype) for port, shape in ports]
    out = Unread(problem.output_shape, fmt.dtype)
    plan = scale.plan(operator, *operands, memory=options.memory, out=out, threads=options.threads, **attributes)
    return f"in pieces, on files: {plan}"

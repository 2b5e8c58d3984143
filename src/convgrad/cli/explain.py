"""``convgrad explain``: a graph as a table and a drawing, or how a problem line would be computed."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from convgrad import files, notation
from convgrad.cli.arguments import UsageError, is_graph, limits_of
from convgrad.errors import ConvgradError
from convgrad.functional.explain import explain as explain_call
from convgrad.graph.explain import explain
from convgrad.graph.given import by_id
from convgrad.graph.picture import draw
from convgrad.graph.reader import read


def main(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        if not is_graph(options.what):
            _explain_line(options)
            return 0
        limits = limits_of(options.limit)
        graph = read(options.what, limits)
        if options.tensors:
            read_in = by_id(graph.tensors.values(), files.read_all(options.tensors, limits.memory_bytes))
            graph = graph.with_given({t: array for t, array in read_in.items() if t not in graph.computed})
        print(explain(graph))
        if options.plot:
            draw(graph, options.plot)
    except UsageError as error:
        print(f"convgrad explain: {error}\ntry convgrad explain --help", file=sys.stderr)
        return 2
    except ConvgradError as error:
        print(f"convgrad: {error}", file=sys.stderr)
        return 1
    return 0


def _explain_line(options: argparse.Namespace) -> None:
    """Print how the calls of a problem line would be computed."""
    if options.tensors or options.limit or options.plot:
        raise UsageError("--tensors, --limit and --plot go with GRAPH.json")
    if len(options.what.split()) == 1:
        raise UsageError(f"what to explain is GRAPH.json or a problem line in quotes; got {options.what!r}")
    for call in notation.calls(notation.read(options.what)):
        attributes: dict[str, Any] = dict(call.attributes)
        name, threads = call.format.name, options.threads
        print(explain_call(call.operator, *call.shapes, operand_type=name, threads=threads, **attributes))

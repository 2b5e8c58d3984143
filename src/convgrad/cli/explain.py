"""``convgrad explain``: a graph as a table and a drawing, or how a problem line would be computed."""

from __future__ import annotations

import argparse
from typing import Any

from convgrad import files, notation, pictures
from convgrad.cli.arguments import is_graph, limits_of
from convgrad.cli.console import say
from convgrad.cli.exits import DONE, UsageError
from convgrad.functional.explain import explain as explain_call
from convgrad.graph.explain import explain
from convgrad.graph.given import by_id
from convgrad.graph.picture import draw
from convgrad.graph.reader import read


def main(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if not is_graph(options.what):
        _explain_line(options)
        return DONE
    if options.plot:
        pictures.check_target(options.plot, options.force)
    limits = limits_of(options.limit)
    graph = read(options.what, limits)
    if options.tensors:
        read_in = by_id(graph.tensors.values(), files.read_all(options.tensors, limits.memory_bytes))
        graph = graph.with_given({t: array for t, array in read_in.items() if t not in graph.computed})
    say(explain(graph))
    if options.plot:
        draw(graph, options.plot, options.force)
    return DONE


def _explain_line(options: argparse.Namespace) -> None:
    """Print how the calls of a problem line would be computed."""
    if options.tensors or options.limit or options.plot or options.force:
        raise UsageError("--tensors, --limit, --plot and --force go with GRAPH.json")
    if len(options.what.split()) == 1:
        raise UsageError(f"what to explain is GRAPH.json or a problem line in quotes; got {options.what!r}")
    for call in notation.calls(notation.read(options.what)):
        attributes: dict[str, Any] = dict(call.attributes)
        name, threads = call.format.name, options.threads
        say(str(explain_call(call.operator, *call.shapes, operand_type=name, threads=threads, **attributes)))

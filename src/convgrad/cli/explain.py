"""``convgrad explain``: a graph as a table and a drawing."""

from __future__ import annotations

import argparse
import sys

from convgrad import files
from convgrad.cli.arguments import UsageError, is_graph, limits_of
from convgrad.errors import ConvgradError
from convgrad.graph.explain import explain
from convgrad.graph.given import by_id
from convgrad.graph.picture import draw
from convgrad.graph.reader import read


def main(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        if not is_graph(options.graph):
            raise UsageError(f"what to explain is a file that ends in .json; got {options.graph!r}")
        graph = read(options.graph, limits_of(options.limit))
        if options.tensors:
            read_in = by_id(graph.tensors.values(), files.read_all(options.tensors))
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

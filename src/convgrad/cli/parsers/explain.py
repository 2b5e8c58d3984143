"""The arguments of ``convgrad explain``."""

from __future__ import annotations

import argparse

from convgrad.cli.exits import EXIT_CODES
from convgrad.cli.parsers.parser import Parser, add_limit
from convgrad.cli.parsers.texts import MAX_ERROR, threads, times


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad explain``."""
    explain = Parser(
        prog="convgrad explain",
        description="Print a graph as a table and a drawing, or how a problem would be computed: work, plan, bound.",
        epilog=EXIT_CODES,
    )
    what = "GRAPH.json, a graph as oneDNN dumps it and benchdnn reads it, or a quoted problem line, as of convgrad run"
    explain.add_argument("what", metavar="WHAT", help=what)
    explain.add_argument("--threads", type=threads, help="of a problem line: the threads to plan for")
    explain.add_argument("--max-error", type=times, metavar="TIMES", help=MAX_ERROR)
    memory = "of a problem line: how it would be cut, on files, so that it takes at most so much: 1GB, 512MiB, or bytes"
    explain.add_argument("--memory", metavar="BYTES", help=memory)
    explain.add_argument("--tensors", metavar="FILE", help="arrays by tensor id, from which unknown extents follow")
    printed = explain.add_mutually_exclusive_group()
    json = "print JSON instead of text: of a graph, or each call of a line"
    printed.add_argument("--json", action="store_true", help=json)
    printed.add_argument("--dot", action="store_true", help="print the graph in DOT, which Graphviz draws")
    add_limit(explain)
    return explain

"""The arguments of ``convgrad explain``."""

from __future__ import annotations

import argparse

from convgrad.cli.parsers.parser import Parser, add_limit
from convgrad.cli.parsers.texts import MAX_ERROR, TUNE, threads, times


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad explain``."""
    explain = Parser(
        "convgrad explain",
        "Print the ops and tensors of a graph, or how convgrad would compute a problem: the work, the plan, "
        "the predicted time and the error bound.",
        (
            'convgrad explain "FWD_D f32 NXC mb8ic64ih56oc64oh56kh3ph1" --threads 2',
            "convgrad explain graph.json --dot | dot -Tsvg -o graph.svg",
        ),
    )
    what = (
        "GRAPH.json of oneDNN or benchdnn; a problem line in quotes, as for convgrad run; or cases as for convgrad"
        " verify"
    )
    explain.add_argument("what", metavar="WHAT", help=what)
    explain.add_argument("--threads", type=threads, help="for a problem line: the number of threads of the plan")
    explain.add_argument("--max-error", type=times, metavar="TIMES", help=MAX_ERROR)
    explain.add_argument("--tune", action="store_true", help=TUNE)
    memory = "print the parts of a call that uses at most this memory, such as 1GB"
    explain.add_argument("--memory", metavar="BYTES", help=memory)
    explain.add_argument(
        "--tensors",
        metavar="FILE",
        help="arrays by tensor id, whose shapes determine the extents that the graph leaves open",
    )
    printed = explain.add_mutually_exclusive_group()
    json = "print JSON instead of text"
    printed.add_argument("--json", action="store_true", help=json)
    printed.add_argument("--dot", action="store_true", help="print the graph in the DOT language of Graphviz")
    add_limit(explain)
    return explain

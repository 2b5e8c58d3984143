"""The arguments of ``convgrad probe``."""

from __future__ import annotations

import argparse

from convgrad.cli.exits import EXIT_CODES
from convgrad.cli.parsers.parser import Parser
from convgrad.cli.parsers.texts import positives


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad probe``."""
    probe = Parser(
        prog="convgrad probe",
        description="Reveal the order of a function's sums by calling it: a tree, its blocks, height and bound.",
        epilog=EXIT_CODES,
    )
    called = "a function of yours, called as function(operator, *arrays, **attributes) in the words of convgrad.run"
    probe.add_argument("function", metavar="MODULE:FUNCTION", help=called)
    case = "a quoted problem line, or what else convgrad verify takes as cases: whose shapes are probed, not the arrays"
    probe.add_argument("case", metavar="CASE", nargs="?", help=case)
    probe.add_argument("--role", choices=("weights", "dst", "src"), help="without a case: what one is to solve for")
    probe.add_argument("--dtype", metavar="TYPE", help="the type of the result (default: the operands')")
    threads = "reveal the order with each of these numbers of threads, and whether it changes"
    probe.add_argument("--threads", metavar="N,...", type=positives, default=[], help=threads)
    setter = "what sets the number of threads, such as torch:set_num_threads"
    probe.add_argument("--set-threads", metavar="MODULE:FUNCTION", help=setter)
    probe.add_argument("--json", action="store_true", help="print JSON instead of text, one object per order")
    return probe

"""The arguments of ``convgrad conformance``."""

from __future__ import annotations

import argparse

from convgrad.cli.parsers.parser import Parser
from convgrad.cli.parsers.texts import seconds


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad conformance``."""
    conformance = Parser(
        "convgrad conformance",
        "Judge a function by a fixed list of small cases: forward passes, gradients, transposed convolutions, types, "
        "layouts and edge cases. The results are counted by feature, for a table and a badge.",
        (
            "convgrad conformance mymodule:convolution --isolate --table conformance.md",
            "convgrad conformance mymodule --skips skips.txt --xfails known.txt --strict",
        ),
    )
    called = (
        "a function that is called as convgrad.run is, function(operator, *arrays, **attributes); the default FUNCTION"
        " is run. LIBRARY:FUNCTION is a function of a C library"
    )
    conformance.add_argument("function", metavar="MODULE[:FUNCTION]", help=called)
    conformance.add_argument(
        "--signature", metavar="WORDS", help="as for convgrad verify: the arguments of a C function"
    )
    lines = "lines of a case's name, which may be a pattern such as groups-*, and a reason"
    conformance.add_argument("--skips", metavar="FILE", help=f"the cases that are not run: {lines}")
    conformance.add_argument(
        "--xfails", metavar="FILE", help="the cases that are expected to fail, in lines as for --skips"
    )
    strict = "exit with 1 also if a case is not served, or if an expected failure passes"
    conformance.add_argument("--strict", action="store_true", help=strict)
    isolated = "call the function in a child process, where a crash becomes a failure (default for C libraries)"
    conformance.add_argument("--isolate", action=argparse.BooleanOptionalAction, help=isolated)
    conformance.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, help="with --isolate: the longest time that a call may take"
    )
    conformance.add_argument("--table", metavar="FILE", help="write the badge and the table as Markdown")
    conformance.add_argument("--force", action="store_true", help="replace the table if it exists")
    conformance.add_argument("--verbose", action="store_true", help="print a line for every case")
    return conformance

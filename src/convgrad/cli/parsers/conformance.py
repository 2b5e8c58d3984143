"""The arguments of ``convgrad conformance``."""

from __future__ import annotations

import argparse

from convgrad.cli.parsers.parser import Parser
from convgrad.cli.parsers.texts import FUNCTION, ISOLATE, TIMEOUT, seconds


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad conformance``."""
    conformance = Parser(
        "convgrad conformance",
        "Judge a function by a fixed list of small cases, and count the results by feature, for a table and a badge.",
        (
            "convgrad conformance mymodule:convolution --isolate --table conformance.md",
            "convgrad conformance mymodule --skips skips.txt --xfails known.txt --strict",
        ),
    )
    called = f"{FUNCTION} (default FUNCTION: run), or LIBRARY:FUNCTION of a C library"
    conformance.add_argument("function", metavar="MODULE[:FUNCTION]", help=called)
    conformance.add_argument("--signature", metavar="WORDS", help="the arguments of a C function, as for verify")
    lines = "each line has a name or pattern, such as groups-*, and a reason"
    conformance.add_argument("--skips", metavar="FILE", help=f"a file of cases to skip: {lines}")
    conformance.add_argument("--xfails", metavar="FILE", help="a file, as for --skips, of cases that should fail")
    strict = "also exit with 1 if a case is not served, or if an expected failure passes"
    conformance.add_argument("--strict", action="store_true", help=strict)
    conformance.add_argument("--isolate", action=argparse.BooleanOptionalAction, help=ISOLATE)
    conformance.add_argument("--timeout", metavar="SECONDS", type=seconds, help=TIMEOUT)
    conformance.add_argument("--table", metavar="FILE", help="write the badge and the table as Markdown")
    conformance.add_argument("--force", action="store_true", help="replace the table if it exists")
    conformance.add_argument("--verbose", action="store_true", help="print a line for every case")
    return conformance

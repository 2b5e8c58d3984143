"""The arguments of ``convgrad probe``."""

from __future__ import annotations

import argparse

from convgrad.cli.parsers.parser import Parser
from convgrad.cli.parsers.texts import FUNCTION, positives


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad probe``."""
    probe = Parser(
        "convgrad probe",
        "Find the order in which a function adds. Print the tree of additions, its blocks, its rounding depth and its "
        "error bound.",
        (
            "convgrad probe mymodule:backward",
            "convgrad probe mymodule:backward --threads 1,2,4 --set-threads torch:set_num_threads",
        ),
    )
    called = f"{FUNCTION}, or LIBRARY:FUNCTION of a C library"
    probe.add_argument("function", metavar="MODULE:FUNCTION", help=called)
    probe.add_argument("--signature", metavar="WORDS", help="the arguments of a C function, as for verify")
    case = "a problem line or case as for convgrad verify; its arrays are ignored"
    probe.add_argument("case", metavar="CASE", nargs="?", help=case)
    probe.add_argument("--role", choices=("weights", "dst", "src"), help="the result to probe if you pass no CASE")
    probe.add_argument("--dtype", metavar="TYPE", help="the type of the result (default: the operands')")
    threads = "find the order for each of these numbers of threads, and print whether it changes"
    probe.add_argument("--threads", metavar="N,...", type=positives, default=[], help=threads)
    setter = "a function that sets the number of threads, such as torch:set_num_threads"
    probe.add_argument("--set-threads", metavar="MODULE:FUNCTION", help=setter)
    isolated = (
        "call the function in a child process, where a crash becomes an error (default for C libraries without "
        "--set-threads)"
    )
    probe.add_argument("--isolate", action=argparse.BooleanOptionalAction, help=isolated)
    probe.add_argument("--json", action="store_true", help="print JSON instead of text, one object per order")
    return probe

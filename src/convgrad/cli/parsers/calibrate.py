"""The arguments of ``convgrad calibrate``."""

from __future__ import annotations

from convgrad.cli.parsers.parser import Parser


def parser() -> Parser:
    """Return the parser of ``convgrad calibrate``."""
    calibrate = Parser(
        "convgrad calibrate",
        "Measure the speeds of this machine for about two minutes, and keep them in the kernel cache, so that later"
        " processes choose the plans that are fast here. No result changes.",
        (
            "convgrad calibrate",
            "convgrad calibrate --no-keep",
        ),
    )
    calibrate.add_argument("--no-keep", action="store_true", help="print the speeds, and keep nothing")
    return calibrate

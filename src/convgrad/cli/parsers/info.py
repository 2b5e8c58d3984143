"""The arguments of ``convgrad info``."""

from __future__ import annotations

import argparse

from convgrad.cli.exits import EXIT_CODES
from convgrad.cli.parsers.parser import Parser


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad info``."""
    info = Parser(prog="convgrad info", description="Print what a bug report needs.", epilog=EXIT_CODES)
    info.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return info

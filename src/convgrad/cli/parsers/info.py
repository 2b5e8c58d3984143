"""The arguments of ``convgrad info``."""

from __future__ import annotations

import argparse

from convgrad.cli.parsers.parser import Parser


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad info``."""
    info = Parser(
        "convgrad info",
        "Print what a bug report needs: versions, the processor, instruction sets, caches, threads and settings.",
        (
            "convgrad info",
            "convgrad info --json",
        ),
    )
    info.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return info

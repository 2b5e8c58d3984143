"""A parser that prints and refuses as the commands do, and what several of them take."""

from __future__ import annotations

import argparse
from typing import NoReturn

from convgrad.cli.console import say
from convgrad.cli.exits import UsageError


class Parser(argparse.ArgumentParser):
    """A parser that prints and refuses as the commands do."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise UsageError(message)

    def print_help(self, file: object = None) -> None:
        """Print the help, wherever argparse would."""
        say(self.format_help().rstrip())


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Let a command take --limit NAME=NUMBER."""
    limit = (
        "a limit: file_bytes, nesting, ops, op_bytes of graph files; memory_bytes of tensors and what files expand to"
    )
    parser.add_argument("--limit", metavar="NAME=NUMBER", action="append", default=[], help=limit)

"""A parser that prints and refuses as the commands do, and what several of them take."""

from __future__ import annotations

import argparse
from typing import NoReturn

from convgrad.cli.console import say
from convgrad.cli.exits import UsageError


class Parser(argparse.ArgumentParser):
    """A parser that prints and refuses as the commands do."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line, and say which option a word that is none may have been meant for."""
        raise UsageError(message + self._meant(message))

    def _meant(self, message: str) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, for mistakes only

        _, unknown, words = message.partition("unrecognized arguments: ")
        word = words.split(" ")[0].partition("=")[0]
        near = get_close_matches(word, self._option_string_actions, 1, 0.75) if unknown else []
        return f"; did you mean {near[0]}?" if near else ""

    def print_help(self, file: object = None) -> None:
        """Print the help, wherever argparse would."""
        say(self.format_help().rstrip())


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Let a command take --limit NAME=NUMBER."""
    limit = (
        "a limit: file_bytes, nesting, ops, op_bytes of graph files; memory_bytes of tensors and what files expand to"
    )
    parser.add_argument("--limit", metavar="NAME=NUMBER", action="append", default=[], help=limit)

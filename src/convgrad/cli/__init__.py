"""The command line: each command has a parser in ``parsers/`` and a module of its own."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Sequence
from itertools import pairwise

from convgrad import __version__
from convgrad.cli.console import say
from convgrad.cli.exits import COMMAND_LINE, DONE, EXIT_CODES, UsageError, code_of
from convgrad.cli.parsers import COMMANDS
from convgrad.cli.parsers.parser import Parser
from convgrad.engines.settings import tune
from convgrad.formats import FORMATS


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``--version`` and of the command's name; each command has a parser of its own arguments."""
    commands = "\n".join(f"  {name:12}{does}" for name, does in COMMANDS.items())
    last = f"commands:\n{commands}\n\nconvgrad COMMAND --help, or convgrad help COMMAND, describes it.\n\n{EXIT_CODES}"
    root = Parser("convgrad", "Convolution gradients on arrays, exactly, with a proved error bound.", last=last)
    root.add_argument("--version", action="store_true", help="print the version and stop")
    root.add_argument(
        "command", nargs="?", metavar="COMMAND", choices=(*COMMANDS, "help"), help="one of the commands below"
    )
    root.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return root


def _check_quotes(words: Sequence[str]) -> None:
    """Raise UsageError if the words of a problem line are separate arguments because quotes are missing."""
    for n, (direction, kind) in enumerate(pairwise(words)):
        if re.fullmatch("[FB]WD_[A-Z]+", direction) and kind in FORMATS:
            start = n - (n > 0 and words[n - 1] == "deconv")
            line = " ".join(words[start : n + 4])
            raise UsageError(f'a problem line is one argument: put it in quotes, "{line:.200}"')


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    name, words = "convgrad", sys.argv[1:] if arguments is None else arguments
    try:
        first = parser().parse_args(arguments)
        if first.version:
            say(f"convgrad {__version__}")
            return DONE
        if first.command == "help":
            return main([*first.words[:1], "--help"])
        if first.command is None:
            parser().print_help()
            return COMMAND_LINE
        name = f"convgrad {first.command}"
        _check_quotes(first.words)
        arguments_of = importlib.import_module(f"convgrad.cli.parsers.{first.command}")
        options = arguments_of.parser().parse_intermixed_args(first.words)
        with tune(getattr(options, "tune", False)):
            code: int = importlib.import_module(f"convgrad.cli.{first.command}").main(options)
        return code
    except BaseException as error:
        if isinstance(error, UsageError):
            error.add_note(f"try {name} --help")
        ended = code_of(error, any(len(word) > len("--") and "--json".startswith(word) for word in words))
        if ended is None:
            raise
        return ended

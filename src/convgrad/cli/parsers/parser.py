"""The parser class of all commands, and the option ``--limit``, which several commands have."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from convgrad.cli.console import say
from convgrad.cli.exits import EXIT_CODES, UsageError
from convgrad.spec.operators import OPERATORS
from convgrad.words import meant

COLUMNS = 79  # characters per line of a description
LONGEST = 200  # characters of the command line that an error message may quote


class Parser(argparse.ArgumentParser):
    """A parser that prints by ``say`` and raises UsageError. Its help ends with examples and the exit codes."""

    def __init__(self, prog: str, description: str, examples: Sequence[str] = (), last: str = EXIT_CODES) -> None:
        self.examples = examples
        shown = ["examples:", *(f"  {example}" for example in examples), ""] if examples else []
        super().__init__(
            prog=prog,
            description=textwrap.fill(description, COLUMNS),
            epilog="\n".join([*shown, last]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise UsageError; the message suggests an option for a misspelled word."""
        cut = re.sub(rf"\S{{{LONGEST + 1},}}", lambda word: word[0][:LONGEST], message)
        head, unknown, words = cut.partition("unrecognized arguments: ")
        raise UsageError(head + unknown + (words[:LONGEST] if unknown else words) + self._meant(message))

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """Return the options that a word can abbreviate: none if the word has a blank, as a problem in quotes has."""
        return [] if " " in option_string else super()._get_option_tuples(option_string)

    def _meant(self, message: str) -> str:
        chosen = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if chosen and f"--{chosen[1]}" in self._option_string_actions:
            return f". Did you mean --{chosen[1]}?"
        if chosen:
            return meant(chosen[1], re.findall(r"[\w.-]+", chosen[2]), minimum=0.5)
        _, unknown, words = message.partition("unrecognized arguments: ")
        word, _, value = words.partition(" ")[0].partition("=")
        near = get_close_matches(word, self._option_string_actions, 1, 0.75) if unknown else []
        if not near and "--attr" in self._option_string_actions:
            named = get_close_matches(word.removeprefix("--").replace("-", "_"), _attributes(), 1, 0.75)
            near = [f"--attr {name}={value or 'VALUE'}" for name in named]
        return f". Did you mean {near[0]}?" if near else ""

    def print_help(self, file: object = None) -> None:
        """Print the help on standard output; ``file`` is ignored."""
        say(self.format_help().rstrip())


def _attributes() -> list[str]:
    """Return the names of all operators' attributes, which users may write as options by mistake."""
    return sorted({attribute.name for op in OPERATORS for attribute in op.attributes})


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the option --limit NAME=NUMBER to a parser."""
    limit = "change a limit of files (file_bytes, nesting, ops, op_bytes or cases) or tensors (memory_bytes)"
    parser.add_argument("--limit", metavar="NAME=NUMBER", action="append", default=[], help=limit)

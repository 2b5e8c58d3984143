"""``convgrad completion``: what a shell completes, from the parsers of all commands and the tables of names."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from convgrad.bench import suites
from convgrad.bench.peers import PEERS
from convgrad.cases.collection import NAMES as COLLECTIONS
from convgrad.cli.console import say
from convgrad.cli.exits import DONE, UsageError
from convgrad.cli.parsers import COMMANDS
from convgrad.formats import FORMATS
from convgrad.spec.operators import OPERATORS

_FILES = ("INPUT", "FILE", "FILE.csv", "FILE.png", "WHAT")
_OPERATORS = ("OPERATOR", "CASE")  # by name, or files of them


def main(options: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError("completion needs the shtab package: pip install 'convgrad[completion]'") from error
    script: str = shtab.complete(whole(), shell=options.shell)
    say(script)
    return DONE


def whole() -> argparse.ArgumentParser:
    """Return one parser of all commands, which says what completes each argument; it is read, and parses nothing."""
    root = argparse.ArgumentParser(prog="convgrad")
    root.add_argument("--version", action="store_true", help="print the version and stop")
    commands = root.add_subparsers()
    for name in COMMANDS:
        command = importlib.import_module(f"convgrad.cli.parsers.{name}").parser()
        for action in command._actions:
            _complete(action)
        help = command.description
        commands.add_parser(name, parents=[command], conflict_handler="resolve", description=help, help=help)
    return root


def _complete(action: Any) -> None:
    """Say what completes an argument: its dest knows which names it takes, its metavar which files."""
    if action.choices is None:
        action.choices = _NAMES.get(action.dest)
    if action.metavar in _FILES:
        action.complete = "file"
    elif action.metavar == "DIR":
        action.complete = "directory"
    elif action.metavar in _OPERATORS:
        action.complete = _either(sorted({row.name for row in OPERATORS}))


def _either(names: Sequence[str]) -> dict[str, Any]:
    """Return what completes to a name or to a file."""
    words = " ".join(names)
    bash = f'_convgrad_name_or_file() {{ compgen -W "{words}" -- "$1"; compgen -f -- "$1"; }}'
    zsh = f"_convgrad_name_or_file() {{ compadd -- {words}; _files }}"
    return {
        "bash": "_convgrad_name_or_file",
        "zsh": "_convgrad_name_or_file",
        "fish": f"{words} (__fish_complete_path (commandline -ct))",
        "tcsh": "f",  # which takes one or the other
        "preamble": {"bash": bash, "zsh": zsh},
    }


_NAMES = {
    "suite": [*suites.names(), "all"],
    "collection": COLLECTIONS,
    "against": list(PEERS),
    "dtype": list(FORMATS),
}

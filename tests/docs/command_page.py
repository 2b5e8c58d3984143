"""The page of the command line, made from the parsers of its commands."""

from __future__ import annotations

import argparse
import importlib
import re
from collections import Counter
from collections.abc import Container

from convgrad.cli import COMMANDS
from convgrad.cli.exits import EXIT_CODES

HEAD = """\
# Command line

Look up commands and options here, or run `convgrad COMMAND --help`. To learn how to do something, for example how to
check a kernel, read one of the guides instead. Each command lists its guides after "More".

- In a shell, put a problem line in quotes, because it contains spaces.
- A failed command leaves no partial file. A command replaces an existing file only with `--force`.
- `convgrad --version` prints the version.
- An error is one line on standard error. A second line may contain a command that reproduces the error.
"""

SEE = {
    "run": "[Start](start.md), [Graphs](graphs.md), [Larger than memory](scale.md)",
    "verify": "[Verify anybody's gradient](verify.md), [Cases](cases.md), [Recipes](recipes.md)",
    "conformance": "[Put verify into CI](ci.md#publish-a-conformance-table)",
    "explain": "[Graphs](graphs.md), [Performance](performance.md)",
    "probe": "[Find the order of a sum](probe.md)",
    "bench": "[Benchmarks](benchmarks.md)",
}
UNDER_JSON = """\
With `--json`, an error is also the last object on standard output:
`{"error": {"kind", "message", "exit_code", "notes"}}`."""


def command_line_page() -> str:
    """Return the page: every command with its arguments, and the exit codes."""
    commands = {name: importlib.import_module(f"convgrad.cli.parsers.{name}").parser() for name in COMMANDS}
    every = Counter(_row(action) for command in commands.values() for action in command._actions)
    shared = [row for row, count in every.items() if 1 < count < len(commands)]  # all commands have --help
    lines = [HEAD.rstrip()]
    for name, command in commands.items():
        lines += ["", f"## {command.prog}", "", _text(command.description), "", "```text", *command.examples, "```"]
        lines += ["", f"More: {SEE[name]}."] if name in SEE else []
        for group in command._action_groups:
            lines += _group(group, shared)
    lines += ["", "## Options of several commands", "", *shared]
    lines += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [*(f"| {code} | {_text(means)} |" for code, means in exit_codes()), "", UNDER_JSON]
    return "\n".join(lines) + "\n"


def exit_codes() -> list[tuple[str, str]]:
    """Return each exit code with what it means."""
    return re.findall(r"^  (\d+) +(.+)$", EXIT_CODES, re.MULTILINE)


def _group(group: argparse._ArgumentGroup, shared: Container[str]) -> list[str]:
    """Return the arguments of a group. Those that several commands have are in a section of their own."""
    every = [(_forms(each), _row(each)) for each in group._group_actions if each.dest != "help"]
    rows = [row for _, row in every if row not in shared]
    if names := ", ".join(forms for forms, row in every if row in shared):
        rows.append(f"- {names}: [see below](#options-of-several-commands)")
    titles = {"positional arguments": "Arguments:", "options": "Options:"}
    title = titles.get(str(group.title), f"### {str(group.title).capitalize()}")
    return ["", title, "", *rows] if rows else []


def _row(action: argparse.Action) -> str:
    return f"- {_forms(action)}: {_text(action.help)}"


def _forms(action: argparse.Action) -> str:
    """Return an argument as it is typed: its names, and what stands behind them."""
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    value = "" if action.nargs == 0 else str(action.metavar or choices)
    value += " ..." if action.nargs in ("*", "+") else ""
    if not action.option_strings and action.nargs in ("*", "?"):
        value = f"[{value}]"
    words = f"{', '.join(action.option_strings)} {value}".strip()
    return f"`{words}`"


def _text(words: str | None) -> str:
    """Return words of a parser as Markdown: nothing in them is markup, and what is typed is code."""
    typed_or_markup = r"(?<![\w-])(--?[a-z][\w-]*(?:=\w+)?)|[\\*_<>\[\]|`]"
    return re.sub(typed_or_markup, lambda m: f"`{m[1]}`" if m[1] else f"\\{m[0]}", " ".join(str(words).split()))

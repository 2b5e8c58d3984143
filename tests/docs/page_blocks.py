"""What of a Markdown page is executed: its fenced blocks, each in the way its language says.

```` ```python ```` is run; where it has ``>>>``, each of these is, and answers what stands under it. What is shown
right under a block of Python, as ```` ```text ```` or indented, is how what it prints begins, or the error it raises.
Of ```` ```sh ```` and of blocks without a language, the lines that begin with ``convgrad`` or ``cc`` are run; if no
C compiler is installed, the test is skipped. ```` ```py ```` and ```` ```text ```` are not run. A block of C, Python or
text whose first line is a comment with nothing but a file name is written to that file.
"""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from textwrap import dedent
from types import CodeType
from typing import Any

import pytest

from convgrad.cli import main

PYTHON = ("python", "pycon")
SHELL = ("sh", "")  # of which the lines of convgrad run
SHOWN = ("py", "text", "json", "c", "toml", "yaml", "bibtex")  # and nothing runs
GUESTS = re.compile(r"^\s*(?:import|from) (?:convgrad\.)?(torch|jax|dask|zarr|onnxruntime|tensorflow)\b", re.MULTILINE)
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<words>.*)\n(?P<text>(?:.*\n)*?)(?P=indent)(?P=fence) *$", re.MULTILINE
)
FILE = re.compile(r"\A(?:# |/\* )(?P<name>\w+\.(?:py|c|txt))(?: \*/)?\n")
UNDER = re.compile(r"\n*(?: *```text\n(?P<fenced>(?:.*\n)*?) *```|(?P<indented>(?: {4}.*\n)+))")
ANY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block, and what is shown under it."""

    page: Path
    line: int
    language: str
    text: str
    under: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def commands(self) -> list[str]:
        lines = self.text.replace("\\\n", " ").splitlines() if self.language in SHELL else []
        return [line for line in lines if line.startswith(("convgrad ", "cc "))]

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, if it is one."""
        found = FILE.match(self.text) if self.language in (*PYTHON, "c", "text") else None
        return found["name"] if found else None

    @property
    def runs(self) -> bool:
        return self.language in PYTHON or self.answers or bool(self.commands) or bool(self.file)

    @property
    def answers(self) -> bool:
        return ">>> " in self.text and self.language in (*PYTHON, *SHELL)

    def run(self, names: dict[str, Any]) -> None:
        """Execute it in a namespace; where a library it imports is not installed, skip the test."""
        for library in GUESTS.findall(self.text):
            pytest.importorskip(library)
        if self.file:
            Path(self.file).write_text(self.text, encoding="utf-8")
        for command in self.commands:
            run_command(command)
        if self.answers:
            for one in doctest.DocTestParser().get_examples(self.text):
                self.hold(said(self.code(one.source, one.lineno, "single"), names, one.want), one.want)
        elif self.language in PYTHON:
            self.hold(said(self.code(self.text, 0, "exec"), names, self.under), self.under)

    def code(self, source: str, line: int, mode: str) -> CodeType:
        """Compile a part of it, so that a traceback names the page's line."""
        return compile("\n" * (self.line + line) + source, str(self.page), mode)

    def hold(self, found: str, shown: str) -> None:
        """Assert that what is shown is how what was said begins; three dots stand for anything."""
        shown = re.sub(r"^(?:Traceback.*\n(?: .*\n)*)?(?:\w+\.)*(?=\w+Error: )", "", shown)
        same = doctest.OutputChecker().check_output
        assert not shown or any(same(shown + end, found, ANY) for end in ("", "...\n")), f"{self} says:\n{found}"


def said(code: CodeType, names: dict[str, Any], shown: str) -> str:
    """Return what code prints, and the error that it raises where one is shown."""
    printed = StringIO()
    with redirect_stdout(printed):
        try:
            exec(code, names)
        except Exception as error:
            if not re.search(rf"^(?:\w+\.)*{type(error).__name__}\b", shown, re.MULTILINE):
                raise
            print(f"{type(error).__name__}: {error}")
    return printed.getvalue()


def run_command(command: str) -> None:
    """Run a command line of convgrad or cc: its exit code is 0, or what a comment says: ``# exits with 1``.

    In this process, or as a program if it sets up another library for itself.
    """
    told = re.search(r"# exits with (\d+)", command)
    name, *words = shlex.split(command, comments=True)
    if name == "cc":
        if not shutil.which(name):
            pytest.skip("no C compiler")
        code = subprocess.run([name, *words], check=False).returncode
    elif "--against" in words:
        code = subprocess.run([f"{sysconfig.get_path('scripts')}/{name}", *words], check=False).returncode
    else:
        code = main(words)
    assert code == (int(told[1]) if told else 0), command


def blocks(page: Path) -> Iterator[Block]:
    """Give a page's fenced blocks; one in a list or a tab is taken as it stands there."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        under = UNDER.match(text, found.end() + 1)
        shown = dedent((under["fenced"] or under["indented"]) if under else "")
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found["words"].strip(), dedent(found["text"]), shown)


def run_page(page: Path, until: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    """Run a page's blocks in one namespace, up to one that holds any of some words; return how many ran, and names."""
    names: dict[str, Any] = {"__name__": page.stem}
    ran = 0
    for block in filter(lambda one: one.runs, blocks(page)):
        if any(word in block.text for word in until):
            break
        block.run(names)
        ran += 1
    return ran, names

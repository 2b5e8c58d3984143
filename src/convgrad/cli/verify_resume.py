"""``convgrad verify --resume``: the results of an earlier run of the same command, from its JUnit report."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from xml.etree import ElementTree

from convgrad import __version__
from convgrad.cli.console import wrote
from convgrad.cli.exits import UsageError
from convgrad.cli.verify_options import VerifyOptions
from convgrad.cli.verify_report import Judged, junit
from convgrad.disk import opened, written
from convgrad.errors import FileError
from convgrad.verify.cases.case import Case

# Options that do not change a verdict. --isolate is one of them, so that a run that crashed can go on with it.
FREE = ("junit", "resume", "force", "verbose", "json", "strict", "isolate", "threads")

EVERY_S = 10.0  # the interval between the writes of the report
USE = "Use the same options, or --junit with another file"


def identity(options: VerifyOptions, cases: Sequence[Case]) -> Mapping[str, str]:
    """Return what must be equal in two runs of a command: options, version, and a digest of the problems of all cases.

    The bytes of arrays in files, and the judged function, are not compared.
    """
    posed = [
        (c.name, c.operator, c.shapes, sorted(c.attributes.items()), c.operand_format.name, c.output_format.name)
        for c in cases
    ]
    values = {name: json.dumps(value, default=str) for name, value in vars(options).items() if name not in FREE}
    return values | {"version": __version__, "problems (SHA-256)": hashlib.sha256(repr(posed).encode()).hexdigest()}


def earlier(options: VerifyOptions, cases: Sequence[Case]) -> list[Judged]:
    """Return the verdicts in the report of an earlier run, if --resume is given and the report exists.

    Cases that were not judged because of an error are judged again.
    """
    path = Path(options.junit or "")
    if not options.resume or not path.exists():
        return []
    try:
        with opened(path) as file:
            root = ElementTree.fromstring(file.read())
        properties = {element.get("name"): element.get("value") for element in root.iter("property")}
        if not properties:
            raise ElementTree.ParseError("it has no properties")
    except ElementTree.ParseError as error:
        raise FileError(f"{path}: must be a JUnit report of convgrad verify; {error}. {USE}") from error
    for name, value in identity(options, cases).items():
        if properties.get(name) != value:
            was = f"there {name} is {properties.get(name, 'missing')}, here {value}"
            raise UsageError(f"--resume: {path} must be the report of the same command; {was:.200}. {USE}")
    elements = {element.get("name"): element for element in root.iter("testcase") if element.find("error") is None}
    return [Judged(case, element=elements[case.name]) for case in cases if case.operator and case.name in elements]


class JunitReport:
    """The JUnit file of a run, if --junit is given, and the seconds since the start of the run."""

    def __init__(self, options: VerifyOptions, cases: Sequence[Case], refused: Sequence[str]) -> None:
        self._path, self._cases, self._refused = options.junit, len(cases), refused
        self._places = {case.name: number for number, case in enumerate(cases)}
        self._about = identity(options, cases)
        self._replace = options.force or options.resume
        self._started = self._saved = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds since the start of the run."""
        return time.monotonic() - self._started

    def save(self, done: Sequence[Judged], often: bool = False) -> None:
        """Write the report. If ``often``, write it only every 10 seconds, so that a crash loses few results."""
        if self._path is None or (often and time.monotonic() < self._saved + EVERY_S):
            return
        ordered = sorted(done, key=lambda judged: self._places[judged.case.name])
        with suppress(FileError) if often else nullcontext():  # the last write reports the error
            with written(Path(self._path), self._replace) as file:
                file.write(junit(ordered, self._cases, self.seconds, self._refused, self._about))
            self._replace = True
        self._saved = time.monotonic()
        if not often:
            wrote(self._path)

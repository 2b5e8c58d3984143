"""The options of ``convgrad verify``: whether they fit together, and the arithmetic that they declare."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from convgrad import files
from convgrad.cli.exits import UsageError
from convgrad.disk import check_new
from convgrad.engines.settings import threads
from convgrad.errors import FileError
from convgrad.formats import F32
from convgrad.spec.problem import Problem
from convgrad.verify.c_function import is_library
from convgrad.verify.cases import scheme
from convgrad.verify.cost import default_sample
from convgrad.verify.declared import SUM, Declared, declared, declared_for
from convgrad.verify.fill import Kind
from convgrad.verify.parts import SampleWish, is_sampled

# Rows: an option, other options of which at least one must be given too, and the text after these in an error message.
NEEDS = (
    ("isolate", ("call",), "a function to run in a process of its own"),
    ("timeout", ("isolate",), "a process that can be ended"),
    ("resume", ("junit",), "the report of the run to resume"),
    ("signature", ("call",), "a function of a C library"),
    ("with_references", ("export",), "a folder to write them to"),
    ("attr", ("shapes",), "one operator's name and shapes"),
    ("type", ("shapes",), "one operator's name and shapes; other cases say their types"),
)
# Options that exclude one another: the first of a row excludes each of the others.
APART = (
    ("got", "call", "repeat"),
    ("export", "call", "got", "junit", "print_tolerance", "element", "repeat"),
    ("print_tolerance", "call", "got", "junit", "element", "repeat"),
    ("element", "junit", "repeat"),
)


@dataclass(frozen=True)
class VerifyOptions:
    """The options of ``convgrad verify``. The parser, ``parsers/verify.py``, says what each of them means."""

    cases: Sequence[str] = ()
    collection: Sequence[str] = ()
    only: Sequence[str] = ()
    shapes: Sequence[str] | None = None
    attr: Sequence[str] = ()
    type: str | None = None
    dtype: str | None = None
    call: str | None = None
    signature: str | None = None
    isolate: bool | None = None
    timeout: float | None = None
    got: str | None = None
    fill: Kind = "normal"
    seed: int = 0
    operands: str | None = None
    accumulation: str | None = None
    height: int | list[int] | None = None
    algorithm: str | None = None
    max_error: float | None = None
    verbose: bool = False
    strict: bool = False
    json: bool = False
    junit: str | None = None
    resume: bool = False
    export: str | None = None
    with_references: bool = False
    kind: str = ".npy"
    print_tolerance: bool | None = None
    element: tuple[int, ...] | None = None
    repeat: int | None = None
    sample: int | Literal["all"] | None = None
    threads: int | None = None
    limit: Sequence[str] = ()
    force: bool = False


def checked(parsed: argparse.Namespace) -> VerifyOptions:
    """Return the options of a command line. Raise UsageError if they contradict each other, before anything is read.

    Functions of compiled libraries are isolated by default, because they may crash.
    """
    options = VerifyOptions(**{field.name: getattr(parsed, field.name) for field in fields(VerifyOptions)})
    of_library = options.call is not None and is_library(options.call)
    options = replace(options, isolate=of_library) if options.isolate is None else options
    if of_library != (options.signature is not None) and options.call is not None:
        raise UsageError(f"--call LIBRARY:FUNCTION and --signature go together; got --call {options.call!s:.200}")
    if not (options.cases or options.collection):
        raise UsageError("give cases: files, folders, quoted problem lines, or --collection NAME")
    for name, others, what in NEEDS:
        if _has_value(options, name) and not any(_has_value(options, other) for other in others):
            raise UsageError(f"{_flag(name)} goes with {_flag(others[0])}: {what}")
    for name, *apart in APART:
        both = next((other for other in apart if _has_value(options, other)), None)
        if _has_value(options, name) and both is not None:
            raise UsageError(f"{_flag(name)} and {_flag(both)} exclude each other; give one")
    if options.kind not in scheme.KINDS:
        raise UsageError(f"--kind must be one of {', '.join(scheme.KINDS)}; got {options.kind!r:.200}")
    declared("convgrad verify", F32, options.accumulation, options.height, options.algorithm or SUM)
    if options.threads is not None:
        with threads(options.threads):
            pass
    return options


def check_for(options: VerifyOptions, cases: int) -> None:
    """Raise an error if the options do not fit the number of cases, or name a file that cannot be used."""
    if options.element is not None and cases != 1:
        raise UsageError(f"--element needs exactly one case; there are {cases} (select one by --only NAME)")
    if options.got is not None and not Path(options.got).is_dir():
        if not files.split_place(options.got)[0].exists():
            raise FileError(f"{options.got}: no such folder or file of results")
        if cases > 1:
            raise UsageError(f"--got must be a folder of results for {cases} cases; got the file {options.got}")
    if options.junit is not None:
        check_new(Path(options.junit), options.force or options.resume)


def declared_by(
    options: VerifyOptions, problem: Problem, height: int | list[int] | None, shared: bool = False
) -> Declared:
    """Return the arithmetic that the options declare for a problem; ``height`` is the rounding depth of its sums.

    A ``shared`` height is that of several cases.
    """
    return declared_for(problem, options.accumulation, height, options.algorithm or SUM, shared)


def sample_of(options: VerifyOptions, problem: Problem) -> SampleWish | None:
    """Return the sample to check of a problem's result, or None for all elements."""
    if options.algorithm not in (None, SUM) or options.sample == "all":
        return None
    drawn = None if options.sample is None else SampleWish(options.sample, options.seed)
    wish = drawn or default_sample(problem, options.seed)
    return wish if is_sampled(problem, wish) else None


def _has_value(options: VerifyOptions, name: str) -> bool:
    value = getattr(options, name)
    return value is not None and value is not False and value != []


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"

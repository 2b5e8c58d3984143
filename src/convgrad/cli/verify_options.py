"""Checks that the options of ``convgrad verify`` fit together, and the arithmetic that the options declare."""

from __future__ import annotations

import argparse
from pathlib import Path

from convgrad import files
from convgrad.cases import scheme
from convgrad.cli.exits import UsageError
from convgrad.disk import check_new
from convgrad.engines.settings import threads
from convgrad.errors import FileError
from convgrad.formats import F32
from convgrad.spec.problem import Problem
from convgrad.verify.c_function import is_library
from convgrad.verify.cost import default_sample
from convgrad.verify.declared import SUM, Declared, declared, declared_for
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


def check_options(options: argparse.Namespace) -> None:
    """Raise UsageError if options contradict each other, before anything is read.

    Functions of compiled libraries are isolated by default, because they may crash.
    """
    of_library = options.call is not None and is_library(options.call)
    if of_library != (options.signature is not None) and options.call is not None:
        raise UsageError(f"--call LIBRARY:FUNCTION and --signature go together; got --call {options.call!s:.200}")
    if options.isolate is None:
        options.isolate = of_library
    if not (options.cases or options.collection):
        raise UsageError("give cases: files, folders, quoted problem lines, or --collection NAME")
    for name, others, what in NEEDS:
        if _given(options, name) and not any(_given(options, other) for other in others):
            raise UsageError(f"{_flag(name)} goes with {_flag(others[0])}: {what}")
    for name, *apart in APART:
        both = next((other for other in apart if _given(options, other)), None)
        if _given(options, name) and both is not None:
            raise UsageError(f"{_flag(name)} and {_flag(both)} exclude each other; give one")
    if options.kind not in scheme.KINDS:
        raise UsageError(f"--kind must be one of {', '.join(scheme.KINDS)}; got {options.kind!r:.200}")
    declared("convgrad verify", F32, options.accumulation, options.height, options.algorithm or SUM)
    if options.threads is not None:
        with threads(options.threads):
            pass


def check_for(options: argparse.Namespace, cases: int) -> None:
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
    options: argparse.Namespace, problem: Problem, height: int | list[int] | None, shared: bool = False
) -> Declared:
    """Return the arithmetic that the options declare for a problem; ``height`` is the rounding depth of its sums.

    A ``shared`` height is that of several cases.
    """
    return declared_for(problem, options.accumulation, height, options.algorithm or SUM, shared)


def sample_of(options: argparse.Namespace, problem: Problem) -> SampleWish | None:
    """Return the sample to check of a problem's result, or None for all elements."""
    if options.algorithm not in (None, SUM) or options.sample == "all":
        return None
    found = (
        default_sample(problem, options.seed) if options.sample is None else SampleWish(options.sample, options.seed)
    )
    return found if is_sampled(problem, found) else None


def _given(options: argparse.Namespace, name: str) -> bool:
    value = getattr(options, name)
    return value is not None and value is not False and value != []


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"

"""The cases of a command line of ``convgrad verify``, and the operands of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path

from convgrad.array_types import Array
from convgrad.arrays import native
from convgrad.cli.arguments import attributes_of, shape_of
from convgrad.cli.checks import as_kept
from convgrad.cli.console import LISTED
from convgrad.cli.exits import UsageError
from convgrad.cli.verify_options import VerifyOptions
from convgrad.errors import ConvgradError, FileError, UnsupportedError
from convgrad.formats import FORMATS, of_dtype
from convgrad.functional.call import Prepared, prepare
from convgrad.graph.limits import Limits
from convgrad.spec.layouts import shape_words
from convgrad.spec.operators import Operator
from convgrad.spec.problem import Problem
from convgrad.verify import cases
from convgrad.verify.cases import scheme
from convgrad.verify.cases.case import Arrays, Case, NoCaseError, PassedOverError
from convgrad.verify.cases.naming import named_apart
from convgrad.verify.declared import SUM
from convgrad.verify.fill import fill
from convgrad.verify.parts import at_once


@dataclass(frozen=True, eq=False)
class Posed:
    """A case with its operands: ``operands`` is their origin in words, ``brought`` has arrays stored with the case."""

    case: Case
    call: Prepared
    operands: str
    brought: Arrays | None


@dataclass
class UnreadSources:
    """The errors of sources that could not be read, in reading order, of files and of parts of files without a case."""

    refused: list[ConvgradError] = field(default_factory=list)
    empty: list[ConvgradError] = field(default_factory=list)
    passed_over: list[ConvgradError] = field(default_factory=list)

    def note(self, error: ConvgradError) -> None:
        """Append an error to the list that it belongs to."""
        if isinstance(error, PassedOverError):
            self.passed_over.append(error)
            return
        (self.empty if isinstance(error, NoCaseError) else self.refused).append(error)

    def leave_out_arrays(self, names: Sequence[str], folders: Sequence[str | None]) -> None:
        """Remove from ``empty`` the files in the folders of --got and --operands that hold arrays of the cases."""
        own = {str(Path(folder, name)) for folder in folders if folder is not None for name in names}
        self.empty = [
            error for error in self.empty if not own.intersection(_beginnings(str(error).partition(": must")[0]))
        ]


def _beginnings(path: str) -> Iterator[str]:
    """Yield a path up to each of its dots, because the name of a case may have dots."""
    return (path[:at] for at, letter in enumerate(path) if letter == ".")


def cases_of(options: VerifyOptions, limits: Limits, unread: UnreadSources) -> list[Case]:
    """Return all cases of the command line under unique names; the same command line gives the same names.

    Errors are recorded in ``unread``. If no case could be read, the first error is raised.
    """
    all_cases = list(named_apart(_read(options, limits, unread)))
    unread.leave_out_arrays([case.name for case in all_cases], [options.got, options.operands])
    if not all_cases:
        errors = [*unread.refused, *unread.empty]
        for error in errors[1 : 1 + LISTED]:
            errors[0].add_note(f"convgrad: {error}")
        if errors:
            raise errors[0]
        raise FileError(f"{', '.join(options.cases)}: must contain a case; there is none")
    cases = [case for case in all_cases if _wanted(case.name, options.only)]
    idle = [pattern for pattern in options.only if not any(_wanted(case.name, [pattern]) for case in all_cases)]
    if idle:
        raise UsageError(f"no case has a name like {', '.join(idle):.200}; there are {_some(all_cases)}")
    if options.dtype is None:
        return cases
    return [replace(case, output_format=FORMATS[options.dtype]) for case in cases]


def _some(cases: Sequence[Case]) -> str:
    names = [case.name for case in cases]
    return ", ".join(names) if len(names) < 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _wanted(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _read(options: VerifyOptions, limits: Limits, unread: UnreadSources) -> Iterator[Case]:
    if options.shapes is not None:
        yield _typed(options, options.shapes)
    else:
        for source in options.cases:
            yield from cases.read(source, limits, unread.note)
    for name in options.collection:
        from convgrad.verify.cases import collection  # noqa: PLC0415 - most runs read none

        yield from collection.cases(name)


def _typed(options: VerifyOptions, shapes: Sequence[str]) -> Case:
    """Return the case that OPERATOR, --shapes, --attr and the types describe."""
    if len(options.cases) != 1 or options.collection:
        raise UsageError("--shapes goes with one operator's name and no other cases")
    operator = options.cases[0]
    attributes = attributes_of(operator, options.attr)
    fmt = FORMATS[options.type or "f32"]
    name = f"{operator}_{fmt}_{'_'.join(shapes)}"
    case = Case(
        name,
        "command line",
        operator,
        tuple(map(shape_of, shapes)),
        attributes,
        fmt,
        FORMATS[options.dtype or fmt.name],
    )
    case.posed()  # raises an error now if the problem is invalid
    return case


# -- operands ----------------------------------------------------------------------------------------------------


def pose(case: Case, options: VerifyOptions, limits: Limits) -> Posed:
    """Return a case with its operands: arrays stored with it, or in the folder of --operands or --got, or generated."""
    if case.unsupported:
        raise UnsupportedError(case.unsupported)
    op, problem = case.posed()
    whole = options.print_tolerance or options.algorithm not in (None, SUM)
    _check_memory(case, op, problem, limits, prod(problem.output_shape) if whole else at_once(problem))
    brought = None if case.arrays is None else case.arrays()
    operands, origin = (brought.operands, case.place) if brought else _operands(case, op, problem, options, limits)
    return Posed(case, _bound(case, op, operands).within(options.max_error), origin, brought)


def _operands(
    case: Case, op: Operator, problem: Problem, options: VerifyOptions, limits: Limits
) -> tuple[tuple[object, ...], str]:
    for folder in (options.operands, options.got):
        if folder is not None and Path(folder).is_dir():
            operands = scheme.operands(Path(folder), case, limits)
            if operands is not None:
                return _as_in_case(operands, case, op, folder), folder
            if folder == options.operands:
                raise FileError(f"{folder}: the operands of {case.name} must be there; {scheme.missing(case)}")
    return fill(problem, _array_shapes(case, op), options.fill, options.seed), generated(options)


def _as_in_case(operands: Sequence[Array], case: Case, op: Operator, folder: str) -> tuple[Array, ...]:
    """Return operands from files in the case's type and native byte order, because few functions take another order.

    Raise FileError if a shape is another, or a value would change.
    """
    kept = tuple(as_kept(array, case.operand_format) for array in operands)
    names = [port.name for port in op.operands if not port.is_shape]
    for name, array, shape in zip(names, kept, _array_shapes(case, op), strict=False):
        fmt = of_dtype(array.dtype)
        if array.shape != shape or fmt is not case.operand_format:
            sentence = f"{name} of {case.name} must be {case.operand_format} {shape_words(shape)}"
            raise FileError(f"{folder}: {sentence}; its file has {fmt or array.dtype} {shape_words(array.shape)}")
    return tuple(native(array, case.operand_format) for array in kept)


def generated(options: VerifyOptions) -> str:
    """Return the origin of generated operands in words."""
    return f"{options.fill}, seed {options.seed}"


def _array_shapes(case: Case, op: Operator) -> list[tuple[int, ...]]:
    return [shape for port, shape in zip(op.operands, case.shapes, strict=False) if not port.is_shape]


def _bound(case: Case, op: Operator, operands: Sequence[object]) -> Prepared:
    arrays = iter(operands)
    inputs = tuple(
        shape if port.is_shape else next(arrays) for port, shape in zip(op.operands, case.shapes, strict=False)
    )
    return prepare(case.operator, inputs, case.attributes, case.output_format)


def _check_memory(case: Case, op: Operator, problem: Problem, limits: Limits, certified: int) -> None:
    """Raise UnsupportedError if operands, result and six f64 numbers per certified element exceed the memory limit."""
    elements = prod(problem.output_shape)
    operands = sum(map(prod, _array_shapes(case, op)))
    size = problem.operand_format.itemsize * operands + problem.output_format.itemsize * elements
    size += 48 * certified
    if size > limits.memory_bytes:
        wanted = f"arrays must take at most {limits.memory_bytes} bytes (--limit memory_bytes=N)"
        raise UnsupportedError(f"{case.place}: {wanted}; {case.name} takes {size}")

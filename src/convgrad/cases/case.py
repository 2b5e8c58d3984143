"""A case: one call to judge, as a value, whatever notation it was written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from convgrad.errors import ConvgradError, FileError
from convgrad.formats import Format
from convgrad.functional.call import problem_from_shapes
from convgrad.spec.operators import Operator
from convgrad.spec.problem import Problem
from convgrad.spec.shapes import Shape

Array = NDArray[Any]


class NoCaseError(FileError):
    """A file in a known notation that is whole and has no case, such as a graph without a convolution."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """What a case brings along: its operands in the operator's order, no shape operands, and a result if it has one."""

    operands: tuple[Array, ...]
    result: Array | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """One call of ``convgrad.run`` to judge.

    ``name`` is unique among the cases of a run and fit for a file's name; ``place`` says where the case was read, as
    "cases.txt:12:1". ``shapes`` has an entry per operand, of a shape operand its values, in the operator's layouts;
    ``attributes`` are strict. ``arrays`` reads what the case brings along, None where operands are to be made up.
    ``why`` is a sentence on what is hard about it, ``note`` a warning about what its notation leaves open.

    ``unsupported`` says why nobody can judge it: what its notation allows and this library does not serve. The rest of
    such a case may say nothing.
    """

    name: str
    place: str
    operator: str
    shapes: tuple[Shape, ...]
    attributes: Mapping[str, object]
    operand_format: Format
    output_format: Format
    arrays: Callable[[], Arrays] | None = None
    why: str = ""
    unsupported: str = ""
    note: str = ""

    def posed(self) -> tuple[Operator, Problem]:
        """Return the operator's row and the problem, or raise the error of the rule that the case breaks."""
        return problem_from_shapes(self.operator, self.shapes, self.attributes, self.operand_format, self.output_format)


Found = Case | ConvgradError  # what a reader gives: a case, or why a word, a line or a file cannot be read

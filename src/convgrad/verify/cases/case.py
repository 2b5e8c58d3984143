"""A case: one call to check, as a value that does not depend on its notation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from convgrad.array_types import Array
from convgrad.errors import ConvgradError, FileError
from convgrad.formats import Format
from convgrad.functional.call import problem_from_shapes
from convgrad.spec.operators import Operator
from convgrad.spec.problem import Problem
from convgrad.spec.shapes import Shape


class NoCaseError(FileError):
    """A file in a known notation that is valid but has no case, such as a graph without a convolution."""


class PassedOverError(NoCaseError):
    """Parts of a file that are no cases, such as the ReLUs of a graph with convolutions."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """The arrays of a case: operands in the operator's order, without shape operands, and a result if there is one."""

    operands: tuple[Array, ...]
    result: Array | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """One call of ``convgrad.run`` to check.

    ``name`` is unique among the cases of a run and can be part of a file name. ``place`` is where the case was read,
    such as "cases.txt:12:1". ``shapes`` has an entry per operand, in the operator's layouts; the entry of a shape
    operand is its values. ``attributes`` have the types of the operator table, with a list for each value per axis.
    ``arrays`` reads the arrays of the case; if it is None, operands must be generated. ``why`` is a sentence that says
    why the case is hard. ``note`` is a warning about an ambiguity of the notation.

    ``unsupported`` is the reason why the case cannot be checked: its notation allows it, but this library does not
    support it. The other fields of an unsupported case may be empty.
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


Reading = Case | ConvgradError  # a case, or the error of a word, a line or a file that cannot be read

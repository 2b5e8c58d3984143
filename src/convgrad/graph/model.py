"""The elements of a graph: logical tensors, and ops over them that are connected by equal tensor ids."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import mul
from typing import Any, cast

import numpy as np

from convgrad.engines.settings import accuracy
from convgrad.errors import GraphError, InvalidAttributeError
from convgrad.formats import FORMATS, Format, meant
from convgrad.spec.check import as_integer, as_integers
from convgrad.spec.operators import LARGEST_RANK, OPERATORS, S64_MAX, VERSION, Operator, Port
from convgrad.words import printable

FLOAT_DTYPES = ("f32", "bf16", "f16", "f8_e5m2", "f8_e4m3")
INTEGER_DTYPES = ("s32", "s64")
DTYPES = ("undef", *FLOAT_DTYPES, *INTEGER_DTYPES, "s8", "u8", "s4", "u4", "boolean")
LAYOUT_TYPES = ("undef", "any", "strided", "opaque")
PROPERTY_TYPES = ("undef", "variable", "constant", "host_scalar")
LARGEST_ID = 2**64 - 1
LONGEST_SENTENCE = 1000

RELU = Operator(  # an operator of graphs only, because the functions have the option ``activation`` instead
    "ReLU",
    ("G3",),
    "bias_add",
    False,
    (Port("src", "src"),),
    Port("dst", "dst"),
    (),
    "dst has the shape of src",
    "ReLU (oneDNN developer guide)",
)

_ROWS: dict[str, list[Operator]] = {RELU.name: [RELU]}
for _row in OPERATORS:
    _ROWS.setdefault(_row.name.removesuffix(VERSION), []).append(_row)

Shape = tuple[int, ...]
Dims = tuple[int | None, ...]


@dataclass(frozen=True)
class LogicalTensor:
    """The description of a tensor. Equal ids mean the same tensor, and require equal descriptions.

    Args:
        id: The tensor's id, an integer from 0 to 2**64 - 1.
        dtype: The type of the elements, for example "f32" or "s64"; "undef" is unknown. Default: "undef".
        dims: The extents, with None or any negative number for an unknown extent; None is an unknown rank. A single
            unknown extent counts as an unknown rank, because the file format cannot distinguish them. Default: None.
        strides: The strides in elements, one per axis; None is unknown. A strided tensor of known extents is dense and
            row-major by default. Default: None.
        layout_type: "strided", "any", "opaque" or "undef". Default: "strided".
        property_type: "variable", "constant", "host_scalar" or "undef". Default: "undef".
        name: A name for Python only, because the file format has no names. Default: "".

    >>> print(LogicalTensor(0, "f32", (8, 56, -1, 64), name="src"))
    0 src: f32 8x56x?x64
    >>> LogicalTensor(1, "bf16", (2, 3, 4)).strides
    (12, 4, 1)
    """

    id: int
    dtype: str = "undef"
    dims: Dims | None = None
    strides: Shape | None = None
    layout_type: str = "strided"
    property_type: str = "undef"
    name: str = ""

    def __post_init__(self) -> None:
        """Check every field, and bring ``dims`` and ``strides`` into canonical form."""
        object.__setattr__(self, "id", checked_id("a tensor", self.id))
        if self.name.isdecimal():
            raise GraphError(f"a tensor's name must not be a number, as ids are; got {self.name!r:.80}")
        _check_choice("dtype", self.dtype, DTYPES)
        _check_choice("layout_type", self.layout_type, LAYOUT_TYPES)
        _check_choice("property_type", self.property_type, PROPERTY_TYPES)
        if self.dims is not None:
            extents_or_unknown = tuple(-1 if extent is None else extent for extent in self.dims)
            extents = _integers(extents_or_unknown)
            if extents is None or max(extents, default=0) > S64_MAX or len(extents) > LARGEST_RANK:
                raise GraphError(f"dims must be at most {LARGEST_RANK} integers below 2^63; got {self.dims!r:.80}")
            dims = tuple(None if extent < 0 else extent for extent in extents)
            object.__setattr__(self, "dims", None if dims == (None,) else dims)
        if self.strides is not None:
            strides = _integers(self.strides)
            if strides is None or min(strides, default=0) < 0 or max(strides, default=0) > S64_MAX:
                raise GraphError(f"strides must be non-negative integers below 2^63; got {self.strides!r:.80}")
            if len(strides) > LARGEST_RANK if self.dims is None else len(strides) != len(self.dims):
                axes = f"at most {LARGEST_RANK}" if self.dims is None else len(self.dims)
                raise GraphError(f"strides must be one per axis, {axes} here; got {len(strides)}")
            object.__setattr__(self, "strides", strides)
        elif self.layout_type == "strided" and (shape := self.shape) is not None:
            dense = dense_strides(shape)
            if max(dense, default=0) > S64_MAX:
                raise GraphError(f"dims must make dense strides below 2^63; got {self!s:.80}")
            object.__setattr__(self, "strides", dense)

    @property
    def shape(self) -> Shape | None:
        """The extents, or None if not all are known."""
        return None if self.dims is None or None in self.dims else cast(Shape, self.dims)

    @property
    def format(self) -> Format | None:
        """The number format, or None if no operator accepts the type."""
        return FORMATS[self.dtype] if self.dtype in FLOAT_DTYPES else None

    def span(self, shape: Shape) -> int:
        """Return the number of elements from the first to the last of an array, which has the tensor's strides."""
        strides = dense_strides(shape) if self.strides is None else self.strides
        steps = (max(extent - 1, 0) * stride for extent, stride in zip(shape, strides, strict=True))
        return 0 if 0 in shape else 1 + sum(steps)

    def known(self, shape: Shape, dtype: str) -> LogicalTensor | None:
        """Return the tensor with these extents and this type, or None if these contradict the tensor's description."""
        dims = shape if self.dims is None else self.dims
        if self.strides is not None and len(self.strides) != len(shape):
            return None
        if len(dims) != len(shape) or any(d not in (None, s) for d, s in zip(dims, shape, strict=True)):
            return None
        if self.dtype not in ("undef", dtype):
            return None
        return self if (self.dims, self.dtype) == (shape, dtype) else replace(self, dims=shape, dtype=dtype)

    @property
    def label(self) -> str:
        """The id, and the name if the tensor has one."""
        return f"{self.id} {printable(self.name)}".strip()

    def __str__(self) -> str:
        """Return id, name, type and extents."""
        extents = "?" if self.dims is None else "x".join("?" if d is None else str(d) for d in self.dims) or "scalar"
        return f"{self.label}: {self.dtype} {extents}"


@dataclass(frozen=True)
class Verbatim:
    """An attribute as JSON text, if its value as one of the six types would not be written back as it was.

    Only ops outside the convolution family have such attributes.

    Args:
        json: The JSON text.
    """

    json: str

    def __str__(self) -> str:
        """Return the JSON."""
        return self.json


@dataclass(frozen=True)
class Op:
    """An op of a graph.

    Args:
        id: The op's id, an integer from 0 to 2**64 - 1.
        kind: The name of the operator, of any generation, with or without its version. If generations share a kind, the
            attributes' names distinguish them.
        inputs: The input tensors in the operator's order.
        outputs: The output tensors in the operator's order.
        attributes: The attributes by name. Those with the value None are removed. Default: {}.
        name: The op's name in messages. Default: "".
        where: The op's place in its file. Default: "".
        max_error: The option of :func:`convgrad.run`, for this op only; files do not contain it. Default: None.
    """

    id: int
    kind: str
    inputs: tuple[LogicalTensor, ...]
    outputs: tuple[LogicalTensor, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = ""
    where: str = field(default="", compare=False)
    max_error: float | None = None

    def __post_init__(self) -> None:
        """Check the id and the tensors, convert attributes to plain Python values, and remove attributes of None."""
        object.__setattr__(self, "id", checked_id("an op", self.id))
        if self.max_error is not None:
            try:
                accuracy(self.max_error, self.kind)
            except InvalidAttributeError as error:
                raise self.refuse(str(error)) from error
        plain = {name: self._plain(name, value) for name, value in self.attributes.items() if value is not None}
        object.__setattr__(self, "attributes", plain)
        for tensors in (self.inputs, self.outputs):
            if not isinstance(tensors, tuple) or not all(isinstance(tensor, LogicalTensor) for tensor in tensors):
                raise self.refuse(f"inputs and outputs must be tuples of LogicalTensor; got {tensors!r:.80}")

    def _plain(self, name: str, value: object) -> object:
        """Return an attribute as one of the six types that files have: bool, s64, f32, string, s64[], f32[]."""
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if isinstance(value, bool | str) or (isinstance(value, Verbatim) and not rows_of(self.kind)):
            return value
        if isinstance(value, list | tuple):
            numbers = [_number(item) for item in value]
            if None not in numbers:
                return numbers if set(map(type, numbers)) <= {int} else [float(item) for item in value]
        elif (number := _number(value)) is not None:
            return number
        types = "a bool, a 64-bit integer, a finite float, a string, or a list of integers or floats"
        raise self.refuse(f"attribute {name} must be {types}; got {value!r:.80}")

    @property
    def label(self) -> str:
        """The words for the op in messages: its name, or its kind and id if it has no name."""
        return printable(self.name or f"{self.kind} {self.id}")

    def refuse(self, sentence: str) -> GraphError:
        """Return a GraphError with the op's place in its file and the op's label."""
        return GraphError(f"{self.where} {self.label}: {printable(sentence, LONGEST_SENTENCE)}".strip())


def operator_of(op: Op) -> Operator | None:
    """Return the operator of an op: its row of the operator table, or ``RELU``; None for any other op.

    A kind without its version can have several rows: the first row that has all attributes of the op is returned.
    A second input of integers selects the older input order of ConvolutionBackpropFilters.
    """
    rows = rows_of(op.kind)
    if not rows:
        return None
    second_is_shape = len(op.inputs) > 1 and op.inputs[1].dtype in INTEGER_DTYPES
    rows = [row for row in rows if second_is_shape == _second_is_shape(row)] or rows
    fitting = [row for row in rows if op.attributes.keys() <= {a.name for a in row.attributes}]
    return (fitting or rows)[0]


def rows_of(kind: str) -> Sequence[Operator]:
    """Return the operators of a kind, with or without its version; none if the kind is unknown."""
    return _ROWS.get(kind.removesuffix(VERSION), ())


def _second_is_shape(row: Operator) -> bool:
    return len(row.operands) > 1 and row.operands[1].is_shape


def dense_strides(shape: Shape) -> Shape:
    """Return the row-major strides, in elements; an extent of 0 counts as 1.

    >>> dense_strides((2, 0, 4))
    (4, 4, 1)
    """
    steps = (extent or 1 for extent in shape[:0:-1])
    return tuple(accumulate(steps, mul, initial=1))[::-1] if shape else ()


def _integers(values: Sequence[Any]) -> tuple[int, ...] | None:
    """Return integers as ``as_integers`` does, but faster if they are plain ints."""
    return tuple(values) if set(map(type, values)) <= {int} else as_integers(values)


def _number(value: object) -> int | float | None:
    """Return a 64-bit integer or a finite float as one of Python's own types; None for anything else."""
    integer = as_integer(value)
    if integer is not None:
        return integer if abs(2 * integer + 1) < 2**64 else None
    return float(value) if isinstance(value, float) and math.isfinite(value) else None


def checked_id(what: str, number: object) -> int:
    """Return the id of a tensor or an op as an int, or raise GraphError."""
    integer = as_integer(number)
    if integer is None or not 0 <= integer <= LARGEST_ID:
        raise GraphError(f"the id of {what} must be a non-negative integer below 2^64; got {number!r:.80}")
    return integer


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        hint = meant(value) if choices is DTYPES else ""
        raise GraphError(f"{name} must be one of {', '.join(choices)}; got {value!r:.80}{hint}")

"""Arrays given to a graph: they are found by id or name, checked, and compared with the descriptions of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from convgrad import arrays
from convgrad.array_types import Array
from convgrad.errors import ConvgradError, GraphError
from convgrad.formats import FORMATS, Format
from convgrad.graph.model import FLOAT_DTYPES, LogicalTensor, Op, Shape
from convgrad.spec.layouts import shape_words
from convgrad.spec.operators import Operator

Tensors = Mapping[int, object] | Mapping[str, object] | Mapping[int | str, object]


@dataclass(frozen=True)
class GivenInputs:
    """The given inputs of one op, by tensor id: arrays, values of shape inputs, and descriptions of the arrays."""

    arrays: Mapping[int, Array]
    shapes: Mapping[int, Shape]
    tensors: Mapping[int, LogicalTensor]


def by_id(described: Iterable[LogicalTensor], tensors: Tensors) -> dict[int, object]:
    """Return arrays by tensor id; the keys of ``tensors`` are ids, decimal strings of ids, or names."""
    known = {tensor.id: tensor for tensor in described}
    keys: dict[object, int] = {str(tensor): tensor for tensor in known} | {tensor: tensor for tensor in known}
    keys |= {tensor.name: tensor.id for tensor in known.values() if tensor.name}
    values: dict[int, object] = {}
    for key, value in tensors.items():
        if key not in keys:
            listed = ", ".join(tensor.label for tensor in known.values())
            raise GraphError(f"the graph has no tensor {key!r:.200}; it has {listed:.500}")
        if keys[key] in values:
            raise GraphError(f"tensor {known[keys[key]].label} must be given once; got it by id and by name")
        values[keys[key]] = value
    return values


def formats_of(described: Iterable[LogicalTensor]) -> dict[str, Format | None]:
    """Return the formats of tensors, by the decimal string of the id and by name."""
    formats = [(key, tensor.dtype) for tensor in described for key in (str(tensor.id), tensor.name)]
    return {key: FORMATS.get(dtype) for key, dtype in formats}


def given_to(op: Op, row: Operator, tensors: Mapping[int, LogicalTensor], values: Mapping[int, object]) -> GivenInputs:
    """Return those inputs of an op that ``values`` has, or raise GraphError if they contradict the descriptions."""
    taken: dict[int, Array] = {}
    shapes: dict[int, Shape] = {}
    known: dict[int, LogicalTensor] = {}
    try:
        for port, tensor in zip(row.operands, op.inputs, strict=False):
            if tensor.id not in values:
                continue
            if port.is_shape:
                shapes[tensor.id] = arrays.take_shape(values[tensor.id], row.name, port.name)
                continue
            array, fmt = arrays.take(values[tensor.id], row.name, port.name)
            described = tensors[tensor.id]
            refined = described.known(array.shape, fmt.name) if fmt.name in FLOAT_DTYPES else None
            if refined is None:
                raise op.refuse(f"the array must fit tensor {described}; got {fmt} {shape_words(array.shape)}")
            taken[tensor.id], known[tensor.id] = array, refined
    except GraphError:
        raise
    except ConvgradError as error:
        raise op.refuse(str(error)) from error
    return GivenInputs(taken, shapes, known)

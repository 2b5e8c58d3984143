"""The writer of graph JSON that oneDNN reads: with current kinds and attribute names, type before value, in ASCII."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from convgrad.graph.graph import Graph
from convgrad.graph.infer import inputs_of
from convgrad.graph.model import LogicalTensor, Op, Verbatim, operator_of
from convgrad.graph.reader import UNKNOWN
from convgrad.graph.resolve import SHAPE_MEANINGS
from convgrad.parameters import described
from convgrad.spec.check import as_integers
from convgrad.spec.geometry import Conv, convolution_pad_total, split_pads
from convgrad.spec.operators import OPERATORS, Operator

AUTO_PADS = {"none": "None", "same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}
_ESCAPES = re.compile(r"(?:\\u[0-9a-f]{4})+|\\.|\x7f")  # escapes in ASCII JSON; a character beyond 16 bits has two
_OUTSIDE = re.compile(r"[^ !#-\[\]-~]")  # characters that JSON escapes, or that are not printable ASCII


@described
def to_json(graph: Graph) -> str:
    """Return a finalized graph as JSON. Reading it gives the ops of ``current(graph)``, which have the same JSON.

    >>> from convgrad.graph import from_json
    >>> src, weights = LogicalTensor(0, "f32", (1, 5, 1)), LogicalTensor(1, "f32", (3, 1, 1))
    >>> layer = {"strides": [1], "dilations": [1], "filter_format": "XIO"}
    >>> graph = Graph([Op(0, "Convolution", (src, weights), (LogicalTensor(2),), layer)])
    >>> graph.finalize()
    >>> text = to_json(graph)
    >>> text == to_json(from_json(text)), '"weights_format"' in text
    (True, True)
    """
    header, ops = graph.header, current(graph)
    document = {
        "version": _ascii(header.version),
        "engine_kind": header.engine_kind,
        "fpmath_mode": header.fpmath_mode,
        "fpmath_mode_apply_to_int": str(header.fpmath_mode_apply_to_int).lower(),
        "input_ports": list(inputs_of(ops)),
        "output_ports": list(graph.outputs),
        **header.others,
        "graph": [_op(op) for op in ops],
    }
    return _text(document) + "\n"


@described
def write(path: str | Path, graph: Graph) -> None:
    """Write a finalized graph to a JSON file.

    Args:
        path: The path of the file.
    """
    Path(path).write_text(to_json(graph), encoding="ascii")


def current(graph: Graph) -> tuple[Op, ...]:
    """Return the ops of a finalized graph with the current generation of names, and with all inferred values."""
    return tuple(_current_op(op, graph) for op in graph.ops)


def _current_op(op: Op, graph: Graph) -> Op:
    inputs = tuple(_current_tensor(graph.tensors[tensor.id]) for tensor in op.inputs)
    outputs = tuple(_current_tensor(graph.tensors[tensor.id]) for tensor in op.outputs)
    op = replace(op, inputs=inputs, outputs=outputs, name=_ascii(op.name))
    row = operator_of(op)
    if row is None:
        return replace(op, kind=_ascii(op.kind), attributes=_ascii_attributes(op.attributes))
    today = current_row(row)
    if op.id not in graph.inference.resolved and _pads_count_padding(op, row):
        return replace(op, attributes=_ascii_attributes(op.attributes))
    ports = {port.tensor: tensor for port, tensor in zip(row.operands, inputs, strict=False)}
    return replace(
        op,
        kind=today.name,
        inputs=tuple(ports[port.tensor] for port in today.operands if port.tensor in ports),
        attributes=_current_attributes(op, row, today, graph),
    )


def current_row(row: Operator) -> Operator:
    """Return the row of the same operator in the current generation.

    >>> from convgrad.spec.operators import find
    >>> current_row(find("ConvolutionBackpropFilters-1")).name
    'ConvolutionBackwardWeights'
    """
    if "G3" in row.generations:
        return row
    wanted = (row.solves_for, row.transposed)
    return next(r for r in OPERATORS if "G3" in r.generations and (r.solves_for, r.transposed) == wanted)


def _pads_count_padding(op: Op, row: Operator) -> bool:
    """Return whether pads of an op depend on its output_padding.

    If the extents are unknown, no current operator has these pads, so the op keeps its older kind. All other
    calculated pads are 0 where the current operator accepts the extents.
    """
    is_same = str(op.attributes.get("auto_pad")).lower().startswith("same")
    return row.calculates_pads and is_same and any(as_integers(op.attributes.get("output_padding")) or ())


def _calculated_pads(op: Op, row: Operator, today: Operator, graph: Graph) -> dict[str, object]:
    """Return the pads of an op as attributes of the current operator, if that operator would have other pads.

    oneDNN calculates the pads of transposed gradients from the extents of diff_dst, like those of a convolution.
    """
    resolved = graph.inference.resolved.get(op.id)
    if not (_is_transposed_gradient(row) or (row.calculates_pads and today is not row)) or resolved is None:
        return {}
    checked, geometry = resolved.checked, resolved.problem.geometry
    assert isinstance(geometry, Conv)  # only convolutions have pads
    pads = [(axis.pad_begin, axis.pad_end) for axis in geometry.axes]
    if checked.auto_pad.startswith("same"):
        totals = (convolution_pad_total(axis.src, axis.effective_kernel, axis.stride) for axis in geometry.axes)
        differ = pads != [split_pads(total, checked.auto_pad) for total in totals]
    else:  # the pads of transposed gradients are never None
        differ = checked.auto_pad == "none" and None in (checked.pads_begin, checked.pads_end)
    begin, end = map(list, zip(*pads, strict=True))
    return {"auto_pad": "none", "pads_begin": begin, "pads_end": end} if differ else {}


def _is_transposed_gradient(row: Operator) -> bool:
    return row.transposed and row.solves_for != "src"


def _current_attributes(op: Op, row: Operator, today: Operator, graph: Graph) -> dict[str, object]:
    resolved = graph.inference.resolved.get(op.id)
    attributes_of_op = op.attributes if resolved is None else resolved.attributes
    means = {attribute.name: attribute.means for attribute in row.attributes}
    values = {means.get(name, name): value for name, value in attributes_of_op.items()}
    values |= _calculated_pads(op, row, today, graph)
    output = op.outputs[0].shape
    attributes: dict[str, object] = {}
    for attribute in today.attributes:
        value = values.get(attribute.means)
        if value in (None, []):
            value = attribute.default
        if attribute.means in SHAPE_MEANINGS and output is not None:
            value = list(output)
        strides = as_integers(attributes.get("strides"))
        if attribute.is_pad and value is None and strides:
            value = [0] * len(strides)
        if attribute.spellings and isinstance(value, str):
            value = AUTO_PADS.get(dict(attribute.spellings).get(value.lower(), value), value)
        # oneDNN refuses output_padding of transposed gradients, whose extents imply it if it is below the stride.
        implied = attribute.means == "output_padding" and _is_transposed_gradient(row)
        if value is not None and not (implied and _are_below(as_integers(value) or (), strides or ())):
            attributes[attribute.name] = value
    return _ascii_attributes(
        attributes | {name: value for name, value in attributes_of_op.items() if name not in means}
    )


def _are_below(paddings: Sequence[int], strides: Sequence[int]) -> bool:
    pairs = zip(paddings, strides, strict=False)
    return len(paddings) == len(strides) and all(padding < stride for padding, stride in pairs)


def _ascii_attributes(attributes: Mapping[str, object]) -> dict[str, object]:
    return {_ascii(name): _ascii_value(value) for name, value in attributes.items()}


def _ascii_value(value: object) -> object:
    if isinstance(value, Verbatim):
        return Verbatim(_ESCAPES.sub(lambda match: _ascii(json.loads(f'"{match.group()}"')), value.json))
    return _ascii(value) if isinstance(value, str) else value


def _current_tensor(tensor: LogicalTensor) -> LogicalTensor:
    return replace(tensor, name="")


# -- values to JSON --------------------------------------------------------------------------------------------------


def _op(op: Op) -> dict[str, object]:
    return {
        "id": op.id,
        "name": op.name,
        "kind": op.kind,
        "attrs": {name: _attribute(value) for name, value in op.attributes.items()},
        "inputs": [_tensor(tensor) for tensor in op.inputs],
        "outputs": [_tensor(tensor) for tensor in op.outputs],
    }


def _tensor(tensor: LogicalTensor) -> dict[str, object]:
    dims = [UNKNOWN] if tensor.dims is None else [UNKNOWN if extent is None else extent for extent in tensor.dims]
    return {
        "id": tensor.id,
        "dtype": tensor.dtype,
        "shape": dims,
        "stride": [UNKNOWN] if tensor.strides is None else list(tensor.strides),
        "layout_type": tensor.layout_type,
        "property_type": tensor.property_type,
    }


def _attribute(value: object) -> Mapping[str, object] | Verbatim:
    """Return an attribute with its type first and a bool as 0 or 1, because oneDNN's reader requires this."""
    if isinstance(value, Verbatim):
        return value
    if isinstance(value, list):
        return {"type": "f32[]" if float in map(type, value) else "s64[]", "value": value}
    name = {bool: "bool", int: "s64", float: "f32"}.get(type(value), "string")
    return {"type": name, "value": {"string": str, "bool": int}.get(name, type(value))(value)}


def _text(value: object, line: str = "\n") -> str:
    """Return values as JSON, indented by 2, with the text of Verbatim values unchanged."""
    if isinstance(value, Verbatim):
        return value.json
    if not value or not isinstance(value, dict | list):
        return json.dumps(value, allow_nan=False)
    within = f"{line}  "
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{within}{json.dumps(key)}: {_text(item, within)}" for key, item in value.items())
            + line
            + "}"
        )
    return "[" + ",".join(f"{within}{_text(item, within)}" for item in value) + line + "]"


def _ascii(text: str) -> str:
    """Return a text in which ``_u`` and a code replace characters that JSON escapes or that are not printable ASCII."""
    return _OUTSIDE.sub(lambda match: f"_u{ord(match.group()):04x}", text)

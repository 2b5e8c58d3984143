"""ONNX models as cases: each Conv and ConvTranspose, with the arrays of node-test folders.

A folder has ``model.onnx`` and ``test_data_set_*/input_0.pb, ..., output_0.pb``. A case has explicit pads, computed by
ONNX's rule, which differs from that of convgrad's operators. In ONNX, a ConvTranspose of i positions with SAME_UPPER or
SAME_LOWER has i*s output positions for any output_padding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convgrad.errors import ConvgradError, FileError
from convgrad.graph.limits import Limits
from convgrad.spec.geometry import (
    convolution_pad_total,
    effective_kernel,
    forward_extent,
    split_pads,
    transposed_extent,
)
from convgrad.verify.cases.case import Arrays, Case, PassedOverError, Reading
from convgrad.verify.cases.naming import counted_kinds, safe
from convgrad.verify.cases.onnx_tensors import OnnxTensor, Tensors, UnknownError, of_file, package, parsed, text
from convgrad.verify.cases.place import Place
from convgrad.verify.cases.posed import legal, posed, unsupported
from convgrad.words import printable

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MODEL = "model.onnx"
SETS = "test_data_set_*"
_ARRAY = re.compile(r"(input_\d+|output_0)\.pb")
KINDS = {"Conv": "OIX", "ConvTranspose": "IOX"}  # op types, each with the layout of its input W
FOREIGN = ("ConvInteger", "QLinearConv", "DeformConv", "CausalConvWithState")  # other convolutions of ONNX
AUTO_PADS = {"NOTSET": "none", "SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower", "VALID": "valid"}
LISTS = ("dilations", "kernel_shape", "strides", "pads", "output_padding", "output_shape")
OF_TRANSPOSED = LISTS[-2:]

Shape = tuple[int, ...]
_OPERATORS = {"Conv": "Convolution", "ConvTranspose": "ConvTranspose"}


@dataclass(frozen=True)
class NodePlace(Place):
    """The place of a node of a model."""

    node: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.node}"


def matches(path: Path) -> bool:
    """Return whether a file is an ONNX model."""
    return path.suffix.lower() == ".onnx" and path.is_file()


def has_beside(path: Path) -> bool:
    """Return whether a file is an array of a node test, which is read with the model."""
    of_set = path.parent.match(SETS) and (path.parent.parent / MODEL).is_file()
    return of_set and _ARRAY.fullmatch(path.name) is not None


def read(path: Path, limits: Limits) -> Iterator[Reading]:
    """Yield a case per convolution and set of arrays of the model's folder, or one without arrays if there is no set.

    Nodes that cannot be read give errors, and nodes of other kinds a PassedOverError.
    """
    file = path / MODEL if path.is_dir() else path
    name = safe(file.resolve().parent.name if file.name == MODEL else file.stem)
    model = parsed(package().ModelProto(), file, limits)
    nodes = list(model.graph.node)
    alone, convolutions = len(nodes) == 1, [node for node in nodes if _is_convolution(node)]
    inner = list(_inner(model))
    if not convolutions and not any(_is_convolution(node) for node, _ in inner):
        types = ", ".join(printable(text(node.op_type)) for node in nodes[:5]) or "none"
        yield unsupported(name, Place(str(file)), f"a model must have a node {' or '.join(KINDS)}; got {types}")
        return
    sets = sorted(file.parent.glob(SETS)) if file.name == MODEL else []
    tensors = Tensors(model, file, sets[0] if sets else None, limits)
    for number, node in enumerate(nodes):
        if _is_convolution(node):
            title = printable(text(node.name)) or f"number {number}"
            place = Place(str(file)) if alone else NodePlace(str(file), node=f"{text(node.op_type)} {title}")
            called = name if alone else f"{name}_{text(node.name) or f'{text(node.op_type)}_{number}'}"
            yield from _of_node(_Node(node, called, place, tensors, limits), sets)
    for node, where in inner:
        if _is_convolution(node):
            title = f"{text(node.op_type)} {printable(text(node.name))}".strip()
            called = f"{name}_{text(node.name) or text(node.op_type)}"
            yield unsupported(called, NodePlace(str(file), node=title), f"nodes in {where} are not read")
    others = [text(node.op_type) for node in (*nodes, *(node for node, _ in inner)) if not _is_convolution(node)]
    if others:
        yield PassedOverError(f"{file}: {counted_kinds(others)} cannot be judged")


def _is_convolution(node: NodeProto) -> bool:
    return text(node.op_type) in (*KINDS, *FOREIGN) and node.domain in ("", "ai.onnx")


def _inner(model: ModelProto) -> Iterator[tuple[NodeProto, str]]:
    """Yield the nodes of subgraphs and of the model's functions, each with words for what contains it."""
    waiting = [(node, "") for node in model.graph.node]
    for function in model.functions:
        waiting += [(node, f"the function {printable(text(function.name))}") for node in function.node]
    while waiting:
        node, where = waiting.pop()
        if where:
            yield node, where
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                waiting += [
                    (inside, where or f"a subgraph of {printable(text(node.op_type))}") for inside in graph.node
                ]


@dataclass(frozen=True)
class _Node:
    """A convolution of a model, with the name of its case."""

    node: NodeProto
    name: str
    place: Place
    tensors: Tensors
    limits: Limits


def _of_node(node: _Node, sets: list[Path]) -> Iterator[Reading]:
    """Yield the cases of a convolution, or its error."""
    kind = text(node.node.op_type)
    if kind in FOREIGN:
        yield unsupported(node.name, node.place, f"{kind} is not supported; {' and '.join(KINDS)} are")
        return
    with_arrays = sets if all(node.tensors.has_array(wanted) for wanted in map(text, node.node.input) if wanted) else []
    folders: list[Path | None] = [*with_arrays] or [None]
    for folder in folders:
        number = "" if folder is None or len(sets) == 1 else f"_{folder.name.removeprefix('test_data_')}"
        try:
            yield _case(replace(node, name=node.name + number), folder)
        except UnknownError as error:
            yield unsupported(node.name, node.place, str(error))
        except ConvgradError as error:
            named = str(error).startswith(str(node.place.file))
            yield error if named else node.place.refuse(str(error))


def _case(convolution: _Node, folder: Path | None) -> Case:
    node, place, tensors = convolution.node, convolution.place, convolution.tensors
    names = list(map(text, node.input))
    sources = [tensors.source(name, folder) for name in names if name]
    if "" in names[:2] or len(sources) not in (2, 3) or len({source.format.name for source in sources}) > 1:
        inputs = ", ".join(f"{source.name} of {source.format}" for source in sources)
        inputs += " without X" * (names[:1] == [""]) + " without W" * (names[1:2] == [""])
        raise place.refuse(f"{node.op_type} must have 2 or 3 inputs of one type; got {inputs or 'none'}")
    x, w = sources[0].shape, sources[1].shape
    if len(x) < 3 or len(w) != len(x):
        raise place.refuse(f"X and W must be of one rank, at least 3; got {list(x)} and {list(w)}")
    attributes = _attributes(node.op_type, x[2:], w[2:], _node_attributes(node, place), place)
    output = tensors.output(text(node.output[0]), folder) if node.output else None
    arrays = partial(_arrays, sources, output, folder, convolution.limits) if folder else None
    fmt, shapes = sources[0].format, tuple(source.shape for source in sources)
    case = Case(convolution.name, str(folder or place), _OPERATORS[node.op_type], shapes, attributes, fmt, fmt, arrays)
    extents = _extents(node.op_type, x[2:], w[2:], attributes)
    if 0 in extents and min(extents) >= 0:
        return legal(case, place, (x[0], w[0], *extents))
    posed(case, place)
    return case


def _extents(kind: str, x: Shape, kernel: Shape, attributes: Mapping[str, Any]) -> list[int]:
    """Return the extents of the result of a Conv; none of a ConvTranspose."""
    if kind != "Conv":
        return [1]
    effective = map(effective_kernel, kernel, attributes["dilations"])
    pads = map(sum, zip(attributes["pads_begin"], attributes["pads_end"], strict=True))
    return list(map(forward_extent, x, effective, attributes["strides"], pads))


def _arrays(operands: list[OnnxTensor], output: Path | None, folder: Path, limits: Limits) -> Arrays:
    """Return the arrays of a set, and the result if the set has one, of at most ``memory_bytes`` bytes together."""
    sources = [*operands, *([of_file("the result", output, limits)] if output else [])]
    announced = sum(source.size_bytes for source in sources)
    if announced > limits.memory_bytes:
        sentence = f"its arrays must fit {limits.memory_bytes} bytes (memory_bytes)"
        raise FileError(f"{folder}: {sentence}; their dims say {announced}")
    arrays = [source.read() for source in sources]
    return Arrays(tuple(arrays[: len(operands)]), arrays[len(operands)] if len(arrays) > len(operands) else None)


# -- attributes --------------------------------------------------------------------------------------------------------


def _node_attributes(node: NodeProto, place: Place) -> dict[str, Any]:
    """Return the node's attributes by name: integers, lists of integers, and one string."""
    values_by_name: dict[str, Any] = {}
    lists = [name for name in LISTS if node.op_type == "ConvTranspose" or name not in OF_TRANSPOSED]
    for attribute in node.attribute:
        name = text(attribute.name)
        wanted = "INTS" if name in lists else {"group": "INT", "auto_pad": "STRING"}.get(name)
        kind = attribute.AttributeType.Name(attribute.type) if attribute.type else "UNDEFINED"
        if kind != wanted or name in values_by_name:
            again = " again" * (name in values_by_name)
            sentence = (
                f"{node.op_type} must have attributes {', '.join(lists)} of INTS, group of INT, auto_pad of STRING"
            )
            raise place.refuse(f"{sentence}; got {printable(name)} of {kind}{again}")
        values = {"INTS": list(attribute.ints), "INT": attribute.i, "STRING": attribute.s.decode("utf-8", "replace")}
        values_by_name[name] = values[kind]
    return values_by_name


def _attributes(
    kind: str, x: Shape, kernel: Shape, node_attributes: Mapping[str, Any], place: Place
) -> dict[str, object]:
    """Return the operator's attributes, with pads by ONNX's rule."""
    axes = len(x)
    for name in LISTS:
        length = 2 * axes if name == "pads" else axes
        if len(node_attributes.get(name, ())) not in (0, length):
            raise place.refuse(f"{name} must have {length} values; got {len(node_attributes[name])}")
    if tuple(node_attributes.get("kernel_shape") or kernel) != kernel:
        raise place.refuse(
            f"kernel_shape must be that of W, {list(kernel)}; got {node_attributes['kernel_shape']!s:.200}"
        )
    auto_pad = node_attributes.get("auto_pad", "NOTSET")
    if auto_pad not in AUTO_PADS:
        raise place.refuse(f"auto_pad must be one of {', '.join(AUTO_PADS)}; got {printable(auto_pad)!r:.200}")
    strides = node_attributes.get("strides") or [1] * axes
    dilations = node_attributes.get("dilations") or [1] * axes
    if min(*strides, *dilations) < 1:
        raise place.refuse(f"strides and dilations must be at least 1; got {strides!s:.100} and {dilations!s:.100}")
    pads = node_attributes.get("pads") or [0] * (2 * axes)
    if any(pads) and auto_pad != "NOTSET":
        raise place.refuse(f"pads and auto_pad must not both be given; got {pads!s:.100} and {auto_pad!s:.100}")
    begins, ends, padding = pads[:axes], pads[axes:], node_attributes.get("output_padding") or [0] * axes
    effective = list(map(effective_kernel, kernel, dilations))
    same = AUTO_PADS[auto_pad] if auto_pad.startswith("SAME") else ""
    wanted = node_attributes.get("output_shape") or [i * s for i, s in zip(x, strides, strict=True)]
    if kind == "ConvTranspose" and (same or node_attributes.get("output_shape")):
        totals = [
            transposed_extent(*axis_values) for axis_values in zip(x, effective, strides, wanted, padding, strict=True)
        ]
        if min(totals) < (0 if same == "same_upper" else -1):
            sentence = "an output longer than the kernel's reach needs pads below 0, whose side ONNX leaves open"
            raise place.refuse(f"{sentence}; output_shape {wanted} has {totals} in all")
        # A total of -1 is a pad of 0 at the beginning and -1 at the end, which is the same as an output_padding of 1.
        padding = [extra + (total < 0) for extra, total in zip(padding, totals, strict=True)]
        split = [split_pads(max(total, 0), same or "same_lower") for total in totals]
    elif same:
        totals = list(map(convolution_pad_total, x, effective, strides))
        split = [split_pads(total, same) for total in totals]
    else:
        split = list(zip(begins, ends, strict=True))
    attributes: dict[str, object] = {
        "strides": list(strides),
        "dilations": list(dilations),
        "pads_begin": [begin for begin, _ in split],
        "pads_end": [end for _, end in split],
        "groups": node_attributes.get("group", 1),
        "data_format": "NCX",
        "weights_format": KINDS[kind],
    }
    return attributes | ({"output_padding": list(padding)} if any(padding) and kind == "ConvTranspose" else {})

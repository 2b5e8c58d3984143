"""ONNX models of one Conv or ConvTranspose as cases, with the arrays of their node-test folders.

A folder has ``model.onnx`` and ``test_data_set_*/input_0.pb, ..., output_0.pb``. A case has explicit pads, computed by
ONNX's rule, which differs from that of convgrad's operators. In ONNX, a ConvTranspose of i positions with SAME_UPPER or
SAME_LOWER has i*s output positions for any output_padding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from convgrad.cases.case import Arrays, Case
from convgrad.cases.naming import safe
from convgrad.cases.onnx_tensors import Source, of_file, of_tensor, of_type, package, parsed, text
from convgrad.cases.place import Place
from convgrad.cases.posed import posed, unsupported
from convgrad.errors import FileError
from convgrad.graph.limits import Limits
from convgrad.spec.geometry import convolution_pad_total, effective_kernel, split_pads, transposed_extent
from convgrad.words import printable

MODEL = "model.onnx"
SETS = "test_data_set_*"
_ARRAY = re.compile(r"(input_\d+|output_0)\.pb")
KINDS = {"Conv": "OIX", "ConvTranspose": "IOX"}  # op types, each with the layout of its input W
AUTO_PADS = {"NOTSET": "none", "SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower", "VALID": "valid"}
LISTS = ("dilations", "kernel_shape", "strides", "pads", "output_padding", "output_shape")

Shape = tuple[int, ...]
_OPERATORS = {"Conv": "Convolution", "ConvTranspose": "ConvTranspose"}


def matches(path: Path) -> bool:
    """Return whether a file is an ONNX model."""
    return path.suffix.lower() == ".onnx" and path.is_file()


def has_beside(path: Path) -> bool:
    """Return whether a file is an array of a node test, which is read with the model."""
    of_set = path.parent.match(SETS) and (path.parent.parent / MODEL).is_file()
    return of_set and _ARRAY.fullmatch(path.name) is not None


def read(path: Path, limits: Limits) -> Iterator[Case]:
    """Yield a case per set of arrays in the model's folder, or one case without arrays if there is no set."""
    file = path / MODEL if path.is_dir() else path
    name, place = safe(file.resolve().parent.name if file.name == MODEL else file.stem), Place(str(file))
    graph = parsed(package().ModelProto(), file, limits).graph
    if len(graph.node) != 1 or text(graph.node[0].op_type) not in KINDS or graph.node[0].domain not in ("", "ai.onnx"):
        types = ", ".join(printable(text(node.op_type)) for node in graph.node[:5]) or "none"
        yield unsupported(name, place, f"a model must have one node, {' or '.join(KINDS)}; got {types}")
        return
    sets = sorted(file.parent.glob(SETS)) if file.name == MODEL else []
    for folder in sets:
        number = folder.name.removeprefix("test_data_")
        yield _case(name if len(sets) == 1 else f"{name}_{number}", graph, file, folder, limits)
    if not sets:
        yield _case(name, graph, file, None, limits)


def _case(name: str, graph: Any, file: Path, folder: Path | None, limits: Limits) -> Case:
    node, place = graph.node[0], Place(str(file))
    sources = [_source(graph, wanted, file, folder, limits) for wanted in map(text, node.input) if wanted]
    if len(sources) not in (2, 3) or len({source.format.name for source in sources}) > 1:
        given = ", ".join(f"{source.name} of {source.format}" for source in sources)
        raise place.refuse(f"{node.op_type} must have 2 or 3 inputs of one type; got {given or 'none'}")
    x, w = sources[0].shape, sources[1].shape
    if len(x) < 3 or len(w) != len(x):
        raise place.refuse(f"X and W must be of one rank, at least 3; got {list(x)} and {list(w)}")
    attributes = _attributes(node.op_type, x[2:], w[2:], _given(node, place), place)
    arrays = partial(_arrays, sources, folder, limits) if folder else None
    fmt, shapes = sources[0].format, tuple(source.shape for source in sources)
    case = Case(name, str(folder or file), _OPERATORS[node.op_type], shapes, attributes, fmt, fmt, arrays)
    posed(case, place)
    return case


def _source(graph: Any, name: str, file: Path, folder: Path | None, limits: Limits) -> Source:
    """Return the source of a node's input: a tensor of the model, or an array of the test's set."""
    inside = {text(tensor.name): tensor for tensor in graph.initializer}
    if name in inside:
        return of_tensor(name, inside[name], file)
    inputs = [value for value in graph.input if text(value.name) not in inside]
    number = next((at for at, value in enumerate(inputs) if text(value.name) == name), None)
    if number is None:
        raise FileError(
            f"{file}: {printable(name)} must be an input of the graph or a tensor of the model; it is neither"
        )
    if folder:
        return of_file(name, folder / f"input_{number}.pb", limits)
    return of_type(name, inputs[number].type.tensor_type, file)


def _arrays(operands: list[Source], folder: Path, limits: Limits) -> Arrays:
    """Return the arrays of a set, and the result if the set has one, of at most ``memory_bytes`` bytes together."""
    output = folder / "output_0.pb"
    sources = [*operands, *([of_file("the result", output, limits)] if output.is_file() else [])]
    announced = sum(source.size_bytes for source in sources)
    if announced > limits.memory_bytes:
        sentence = f"its arrays must fit {limits.memory_bytes} bytes (memory_bytes)"
        raise FileError(f"{folder}: {sentence}; their dims say {announced}")
    found = [source.read() for source in sources]
    return Arrays(tuple(found[: len(operands)]), found[len(operands)] if len(found) > len(operands) else None)


# -- attributes --------------------------------------------------------------------------------------------------------


def _given(node: Any, place: Place) -> dict[str, Any]:
    """Return the node's attributes by name: integers, lists of integers, and one string."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        name = text(attribute.name)
        wanted = "INTS" if name in LISTS else {"group": "INT", "auto_pad": "STRING"}.get(name)
        kind = attribute.AttributeType.Name(attribute.type) if attribute.type else "UNDEFINED"
        if kind != wanted:
            sentence = (
                f"{node.op_type} must have attributes {', '.join(LISTS)} of INTS, group of INT, auto_pad of STRING"
            )
            raise place.refuse(f"{sentence}; got {printable(name)} of {kind}")
        values = {"INTS": list(attribute.ints), "INT": attribute.i, "STRING": attribute.s.decode("utf-8", "replace")}
        found[name] = values[kind]
    return found


def _attributes(kind: str, x: Shape, kernel: Shape, given: Mapping[str, Any], place: Place) -> dict[str, object]:
    """Return the operator's attributes, with pads by ONNX's rule."""
    axes = len(x)
    for name in LISTS:
        length = 2 * axes if name == "pads" else axes
        if len(given.get(name, ())) not in (0, length):
            raise place.refuse(f"{name} must have {length} values; got {len(given[name])}")
    if tuple(given.get("kernel_shape") or kernel) != kernel:
        raise place.refuse(f"kernel_shape must be that of W, {list(kernel)}; got {given['kernel_shape']!s:.200}")
    auto_pad = given.get("auto_pad", "NOTSET")
    if auto_pad not in AUTO_PADS:
        raise place.refuse(f"auto_pad must be one of {', '.join(AUTO_PADS)}; got {printable(auto_pad)!r:.200}")
    strides = given.get("strides") or [1] * axes
    dilations = given.get("dilations") or [1] * axes
    if min(*strides, *dilations) < 1:
        raise place.refuse(f"strides and dilations must be at least 1; got {strides!s:.100} and {dilations!s:.100}")
    pads = given.get("pads") or [0] * (2 * axes)
    if any(pads) and auto_pad != "NOTSET":
        raise place.refuse(f"pads and auto_pad must not both be given; got {pads!s:.100} and {auto_pad!s:.100}")
    begins, ends, padding = pads[:axes], pads[axes:], given.get("output_padding") or [0] * axes
    effective = list(map(effective_kernel, kernel, dilations))
    same = AUTO_PADS[auto_pad] if auto_pad.startswith("SAME") else ""
    wanted = given.get("output_shape") or [i * s for i, s in zip(x, strides, strict=True)]
    if kind == "ConvTranspose" and (same or given.get("output_shape")):
        totals = [transposed_extent(*each) for each in zip(x, effective, strides, wanted, padding, strict=True)]
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
        "groups": given.get("group", 1),
        "data_format": "NCX",
        "weights_format": KINDS[kind],
    }
    return attributes | ({"output_padding": list(padding)} if any(padding) and kind == "ConvTranspose" else {})

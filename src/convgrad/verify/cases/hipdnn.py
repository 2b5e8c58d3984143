"""hipDNN bundles as cases: a graph of one convolution in ``NAME.json``, its tensors as raw ``NAME.tensor{uid}.bin``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from convgrad.array_types import Array
from convgrad.disk import opened
from convgrad.errors import FileError
from convgrad.formats import Format, of_program, strided
from convgrad.graph.limits import Limits
from convgrad.verify.cases.case import Arrays, Case
from convgrad.verify.cases.json_values import JsonValue, read_json
from convgrad.verify.cases.naming import safe
from convgrad.verify.cases.place import Place
from convgrad.verify.cases.posed import posed, unsupported

FORMATS = of_program("hipdnn")
OTHER_TYPES: tuple[str, ...] = ("unset", "uint8", "int8", "int32", "int64", "int4", "fp8_e8m0")
OTHER_TYPES += ("fp4_e2m1", "fp6_e2m3", "fp6_e3m2")


@dataclass(frozen=True)
class Node:
    """A type of hipDNN's nodes: the operator, the operands' keys in the operator's order, and the output's key."""

    operator: str
    operands: tuple[str, ...]
    output: str
    shaped: bool  # the output's dims are the operator's shape operand


NODES = {
    "ConvolutionFwdAttributes": Node("Convolution", ("x", "w"), "y", False),
    "ConvolutionBwdAttributes": Node("ConvolutionBackwardData", ("dy", "w"), "dx", True),
    "ConvolutionWrwAttributes": Node("ConvolutionBackwardWeights", ("x", "dy"), "dw", True),
}
START = 1 << 16  # bytes at the start of a file that are searched for its keys
_TENSOR = re.compile(r"(.+)\.tensor\d+\.bin")
_ONEDNN = re.compile(rb'"graph"\s*:')  # a key of oneDNN Graph JSON, which is another dialect


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph: its axes in the order N, C, X... or O, I, X..., with strides in elements."""

    uid: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    format: Format
    file: Path

    @property
    def span(self) -> int:
        """The number of elements in memory from the first to the last element."""
        return 1 + sum((d - 1) * s for d, s in zip(self.dims, self.strides, strict=True)) if min(self.dims) else 0

    @property
    def size_bytes(self) -> int:
        """The bytes of the array in the file, or of its dense copy if that is larger because of a stride of 0."""
        return max(self.span, prod(self.dims)) * self.format.itemsize

    def read(self) -> Array:
        """Return the array, a strided view of the file's elements."""
        itemsize, span = self.format.itemsize, self.span
        with opened(self.file) as file:
            size = os.fstat(file.fileno()).st_size
            if size != span * itemsize:
                sentence = f"dims {list(self.dims)} and strides {list(self.strides)} of {self.format} say"
                raise FileError(f"{self.file}: must have the {span * itemsize} bytes that {sentence}; got {size}")
            data = file.read()
        elements = np.frombuffer(data, self.format.dtype)
        if not span:
            return elements.reshape(self.dims)
        steps = [s * itemsize if d > 1 else 0 for d, s in zip(self.dims, self.strides, strict=True)]
        return strided(elements, self.dims, steps)


def matches(path: Path) -> bool:
    """Return whether a file is JSON with the key "nodes" near its start and without oneDNN's key "graph"."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            start = file.read(START)
    except OSError:
        return False
    return b'"nodes"' in start and not _ONEDNN.search(start)


def has_beside(path: Path) -> bool:
    """Return whether a file is a tensor of a bundle in the same folder."""
    match = _TENSOR.fullmatch(path.name)
    return match is not None and matches(path.with_name(f"{match[1]}.json"))


def read(path: Path, limits: Limits) -> Iterator[Case]:
    """Yield the only case of a bundle. It has arrays if the files of all operands are in the bundle's folder.

    The arrays include a result if the output's file exists.
    """
    graph = read_json(path, limits)
    name, place = safe(path.stem), Place(str(path))
    nodes = graph["nodes"].items()
    if len(nodes) != 1 or nodes[0]["type"].text() not in NODES:
        types = ", ".join(node["type"].text()[:80] for node in nodes[:5]) or "none"
        yield unsupported(name, place, f"a bundle must have one node, of {', '.join(NODES)}; got {types}")
        return
    node = nodes[0]
    row = NODES[node["type"].text()]
    mode = node["parameters"]["conv_mode"].text()
    if mode == "CONVOLUTION":
        yield unsupported(
            name, place, "conv_mode CONVOLUTION flips the kernel; the operators correlate, CROSS_CORRELATION"
        )
        return
    if mode != "CROSS_CORRELATION":
        raise node["parameters"]["conv_mode"].refuse(f"must be CROSS_CORRELATION; it is {mode[:80]!r:.200}")
    operands = [_tensor(graph, node["inputs"][f"{key}_tensor_uid"], path) for key in row.operands]
    output = _tensor(graph, node["outputs"][f"{row.output}_tensor_uid"], path)
    foreign = next((t for t in (*operands, output) if isinstance(t, str)), None)
    if foreign is not None:
        yield unsupported(name, place, f"tensors must be {', '.join(FORMATS)}; got {foreign}")
        return
    taken = [t for t in operands if isinstance(t, Tensor)]
    assert isinstance(output, Tensor)
    case = _case(name, place, row, taken, output, node["parameters"])
    problem = posed(case, place)
    if problem.output_shape != output.dims:
        sentence = f"must be {list(problem.output_shape)} by its operands and parameters; it is {list(output.dims)}"
        raise FileError(f"{path}: the dims of {row.output} {sentence}")
    if taken[0].format is not taken[1].format:
        sentence = f"must be of one data_type; got {taken[0].format} and {taken[1].format}"
        raise FileError(f"{path}: {' and '.join(row.operands)} {sentence}")
    yield _with_arrays(case, taken, output, limits)


def _tensor(graph: JsonValue, uid: JsonValue, path: Path) -> Tensor | str:
    """Return the tensor with a uid, or the name of the tensor's type if the type is not supported."""
    number = uid.integer()
    entry = next((t for t in graph["tensors"].items() if t["uid"].integer() == number), None)
    if entry is None:
        raise uid.refuse(f"must be the uid of a tensor; there is none with {number}")
    name = entry["data_type"].text()
    if name in OTHER_TYPES:
        return name
    dims, strides = entry["dims"].integers(0), entry["strides"].integers(0)
    if len(dims) != len(strides) or len(dims) < 3:
        raise entry.refuse(f"dims and strides must have one length, at least 3; got {len(dims)} and {len(strides)}")
    file = path.with_name(f"{path.stem}.tensor{number}.bin")
    return Tensor(number, dims, strides, entry["data_type"].one_of(FORMATS), file)


def _case(name: str, place: Place, row: Node, operands: list[Tensor], output: Tensor, parameters: JsonValue) -> Case:
    """Return the case without arrays. Dims are in the order of NCX and OIX for any strides."""
    by_key = dict(zip((*row.operands, row.output), (*operands, output), strict=True))
    src = by_key.get("x") or by_key["dx"]
    weights = by_key.get("w") or by_key["dw"]
    c, per_group = src.dims[1], weights.dims[1]
    if not per_group or c % per_group:
        raise place.refuse(f"the channels of weights must divide those of src, by the groups; got {per_group} and {c}")
    shapes = [t.dims for t in operands] + ([output.dims] if row.shaped else [])
    attributes: dict[str, object] = {
        "strides": list(parameters["stride"].integers()),
        "pads_begin": list(parameters["pre_padding"].integers()),
        "pads_end": list(parameters["post_padding"].integers()),
        "dilations": list(parameters["dilation"].integers()),
        "groups": max(c // per_group, 1),
        "data_format": "NCX",
        "weights_format": "OIX",
    }
    return Case(name, str(place), row.operator, tuple(shapes), attributes, operands[0].format, output.format)


def _with_arrays(case: Case, operands: list[Tensor], output: Tensor, limits: Limits) -> Case:
    """Return a case with arrays if both operands have files, or unchanged if neither has; else raise FileError."""
    there = [tensor.file.is_file() for tensor in operands]
    if not any(there):
        return case
    if not all(there):
        missing = operands[there.index(False)].file
        raise FileError(f"{missing}: must be there, as the other operand of {case.place} is; it is not")
    return replace(case, arrays=partial(_arrays, operands, output, limits.memory_bytes))


def _arrays(operands: list[Tensor], output: Tensor, memory_bytes: int) -> Arrays:
    """Return the arrays of a bundle, which must have at most ``memory_bytes`` bytes together."""
    tensors = [*operands, *([output] if output.file.is_file() else [])]
    announced = sum(tensor.size_bytes for tensor in tensors)
    if announced > memory_bytes:
        sentence = f"the tensors must fit {memory_bytes} bytes (memory_bytes)"
        raise FileError(f"{output.file}: {sentence}; dims and strides say {announced}")
    arrays = [tensor.read() for tensor in tensors]
    return Arrays(tuple(arrays[: len(operands)]), arrays[len(operands)] if len(arrays) > len(operands) else None)

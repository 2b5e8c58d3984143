"""The sidecar of a case: a JSON file that describes the case's call, and its arrays in raw files.

    {"operator": ..., "attributes": {...}, "shapes": {shape operand: [...]}, "output": name,
     "tensors": {name: {"dtype": "f32", "shape": [...], "strides": [...], "offset": 0}}}

Only ``tensors`` is read, and each entry may be incomplete. The defaults are the case's dtype and shape, and the
strides, in elements, of an array without gaps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from convgrad import formats
from convgrad.errors import FileError
from convgrad.files.raw import Described
from convgrad.graph.limits import Limits
from convgrad.spec.layouts import dense
from convgrad.spec.operators import LARGEST_RANK, S64_MAX
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.json_values import read_json

KEYS = ("dtype", "shape", "strides", "offset")


def tensors_of(case: Case) -> dict[str, Described]:
    """Return the formats and shapes of a case's arrays by name: operands in the operator's order, then the result."""
    op, problem = case.posed()
    ports = zip(op.operands, case.shapes, strict=False)
    tensors = {port.name: Described(case.operand_format, tuple(shape)) for port, shape in ports if not port.is_shape}
    return tensors | {op.output.name: Described(case.output_format, problem.output_shape)}


def text_of(case: Case) -> str:
    """Return the text of the sidecar of a case whose arrays are row-major without gaps."""
    op, _ = case.posed()
    shapes = {p.name: list(shape) for p, shape in zip(op.operands, case.shapes, strict=False) if p.is_shape}
    tensors = {
        name: {"dtype": d.format.name, "shape": list(d.shape), "strides": list(dense(d.shape))}
        for name, d in tensors_of(case).items()
    }
    call = {"operator": case.operator, "attributes": dict(case.attributes), "shapes": shapes}
    said = {**call, "output": op.output.name, "tensors": tensors}
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in said.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read(path: Path, named: Mapping[str, Described], limits: Limits) -> dict[str, Described]:
    """Return the sidecar's descriptions of a case's arrays. ``named`` maps each name to its default description."""
    document = read_json(path, limits).value
    tensors = document.get("tensors", {}) if isinstance(document, dict) else None
    if not isinstance(tensors, dict) or not all(isinstance(entry, dict) for entry in tensors.values()):
        raise FileError(f'{path}: must be an object whose "tensors" are objects by name')
    return {name: _described(tensors.get(name, {}), d, f"{path}: {name}") for name, d in named.items()}


def _described(entry: dict[str, object], default: Described, where: str) -> Described:
    unknown = entry.keys() - set(KEYS)
    if unknown:
        raise FileError(f"{where} may have {', '.join(KEYS)}; got {min(map(str, unknown))!r:.80}")
    fmt = default.format
    if "dtype" in entry:
        known = formats.named(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        if known is None:
            raise FileError(f"{where}.dtype must be one of {', '.join(formats.FORMATS)}; got {entry['dtype']!r:.80}")
        fmt = known
    shape = _integers(entry, "shape", where) if "shape" in entry else default.shape
    if len(shape) > LARGEST_RANK:
        raise FileError(f"{where}.shape must have at most {LARGEST_RANK} axes; got {len(shape)}")
    strides = _integers(entry, "strides", where) if "strides" in entry else None
    if strides is not None and len(strides) != len(shape):
        raise FileError(f"{where}.strides must be one for each of {len(shape)} axes; got {list(strides)}")
    (offset,) = _integers({"offset": [entry.get("offset", 0)]}, "offset", where)
    return Described(fmt, shape, strides, offset)


def _integers(entry: dict[str, object], key: str, where: str) -> tuple[int, ...]:
    values = entry.get(key, [])
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v <= S64_MAX for v in values):
        raise FileError(f"{where}.{key} must be of non-negative integers; got {values!r:.80}")
    return tuple(values)

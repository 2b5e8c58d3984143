"""The description of an array on an NVIDIA GPU, ``__cuda_array_interface__``: its checks, field by field."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from convgrad import formats
from convgrad.array_types import Array
from convgrad.engines.addresses import array_at
from convgrad.spec.check import as_integer, as_integers
from convgrad.spec.operators import S64_MAX
from convgrad.spec.rules import refuse
from convgrad.words import shown

REQUIRED = ("shape", "typestr", "data", "version")
VERSIONS = range(4)  # later versions may give fields another meaning


def read(described: object, operator: str, name: str) -> tuple[Array, int | None]:
    """Return an array with the address of a described array, and its stream or None. Raise by rules T1 and D1.

    Nothing may read or write the memory of the returned array.
    """

    def check(fits: bool, must: str, got: object) -> None:
        if not fits:  # D1
            sentence = f"{name} must have a correct __cuda_array_interface__: {must}; got {shown(got)}"
            refuse("D1", operator, sentence)

    fields = _fields(described)
    check(fields is not None, "it must be a dict", described)
    assert fields is not None
    check(fields.keys() >= {*REQUIRED}, f"it must have {', '.join(REQUIRED)}", [*fields])
    version, stream = fields["version"], fields.get("stream")
    check(as_integer(version) in VERSIONS, f"version must be an integer up to {VERSIONS[-1]}", version)
    if fields.get("mask") is not None:  # T1
        refuse("T1", operator, f"{name} must be a plain array; got a masked array, whose mask would be ignored")
    kind = fields["typestr"]
    check(isinstance(kind, str), "typestr must be a string", kind)
    fmt = formats.named(kind) or (formats.BF16 if kind == formats.BF16.dtype.str else None)
    if fmt is None or fmt.dtype.str != kind:  # T1
        refuse("T1", operator, f"{name} must be an array of f32, bf16 or f16; got the type string {shown(kind)}")
    item, shape = fmt.itemsize, as_integers(fields["shape"]) or ()
    are_extents = as_integers(fields["shape"]) is not None and min(shape, default=0) >= 0
    check(are_extents, "shape must be a tuple of non-negative integers", fields["shape"])
    dense = tuple(item * prod(shape[axis + 1 :]) for axis in range(len(shape)))
    strides = dense if fields.get("strides") is None else as_integers(fields["strides"]) or ()
    check(len(strides) == len(shape), "strides must be None or a tuple of one integer per axis", fields.get("strides"))
    reach = sum(abs(step) * (extent - 1) for step, extent in zip(strides, shape, strict=True))
    size = item * prod(max(extent, 1) for extent in shape)  # NumPy's limit, also of arrays without elements
    fits = max(size, 0 if 0 in shape else max(reach, *map(abs, strides), 0)) <= S64_MAX
    check(fits, "its size in bytes must fit 63 bits", (shape, strides))
    data = fields["data"]
    is_pair = isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[1], bool | int | np.bool_)
    address = as_integer(data[0]) if is_pair else None
    check(address is not None, "data must be a tuple of an address and whether the memory is read-only", data)
    assert address is not None
    check(0 < address <= S64_MAX or (address == 0 and 0 in shape), "the address must be that of an array", address)
    if address % item:  # D1
        refuse("D1", operator, f"{name} must begin at a multiple of the size of an element; got the address {address}")
    check(
        stream is None or 0 < (as_integer(stream) or 0) <= S64_MAX, "stream must be None or a positive integer", stream
    )
    array = array_at(address, shape, strides, fmt.dtype)
    array.flags.writeable = not data[1]
    return array, as_integer(stream)


def _fields(described: object) -> dict[str, Any] | None:
    """Return the fields of a description; None if it is not a mapping."""
    try:
        return dict(described)  # type: ignore[call-overload,no-any-return]
    except Exception:  # a caller's class may raise anything
        return None

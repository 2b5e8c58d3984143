"""Problems to plant defects in: convolutions with two spatial axes, and their sums by slices of a padded src."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

import convgrad
from campaigns.verdict import filled
from convgrad.functional.call import Prepared, prepare
from convgrad.notation import calls, read
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import find
from convgrad.verify import Verdict, check

Array = np.ndarray
ROLES = ("weights", "dst", "src")
SIZES = (200, 2_000, 20_000)  # terms, about
TYPES = ("f32", "bf16")
DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
OPERATORS = {"weights": "ConvolutionBackwardWeights", "dst": "Convolution", "src": "ConvolutionBackwardData"}


def cut(array: Array, index: Any) -> Array:
    other = array.copy()
    other[index] = 0
    return other


@dataclass(frozen=True)
class Plant:
    """A convolution with two spatial axes, whose attributes all differ unless given, and its arrays, canonical."""

    role: str
    x: Array
    y: Array
    w: Array
    stride: tuple[int, int] = (2, 1)
    dilation: tuple[int, int] = (1, 2)
    begin: tuple[int, int] = (1, 2)
    end: tuple[int, int] = (0, 1)
    groups: int = 2
    bias: Array | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # of the call
    by_engine: bool = False  # sums are convgrad's, in f32

    @property
    def kernel(self) -> tuple[int, int]:
        return self.w.shape[2:]

    def sums(self) -> Array:
        """The result in float64, from slices of the padded src."""
        if self.by_engine:
            return self.right().astype(np.float64)
        x, y, w = (a.astype(np.float64) for a in (self.x, self.y, self.w))
        n, c, *extents = x.shape
        o, (oh, ow), g = y.shape[1], y.shape[2:], self.groups
        (sh, sw), (dh, dw), (kh, kw) = self.stride, self.dilation, self.kernel
        reach = (sh * (oh - 1) + dh * (kh - 1) + 1, sw * (ow - 1) + dw * (kw - 1) + 1)
        wide = np.zeros((n, c, *(max(r, b + i) for r, b, i in zip(reach, self.begin, extents, strict=True))))
        inner = (..., *(slice(b, b + i) for b, i in zip(self.begin, extents, strict=True)))
        wide[inner] = 0 if self.role == "src" else x
        out = {"weights": np.zeros_like(w), "dst": np.zeros_like(y), "src": wide}[self.role]
        for one, h, v in product(range(g), range(kh), range(kw)):
            cs, os = (slice(one * m // g, (one + 1) * m // g) for m in (c, o))
            rows, columns = slice(h * dh, h * dh + sh * (oh - 1) + 1, sh), slice(v * dw, v * dw + sw * (ow - 1) + 1, sw)
            at = (slice(None), cs, rows, columns)
            if self.role == "weights":
                out[os, :, h, v] = np.tensordot(y[:, os], wide[at], ((0, 2, 3), (0, 2, 3)))
            elif self.role == "dst":
                out[:, os] += np.moveaxis(np.tensordot(wide[at], w[os, :, h, v], (1, 1)), 3, 1)
            else:
                out[at] += np.moveaxis(np.tensordot(y[:, os], w[os, :, h, v], (1, 0)), 3, 1)
        out = out[inner] if self.role == "src" else out
        return out if self.bias is None else out + self.bias.astype(np.float64).reshape(1, -1, 1, 1)

    @property
    def summed(self) -> str:
        """The operand of which elements are left out."""
        return "x" if self.role == "dst" else "y"

    def unread(self, index: Any) -> Array:
        """The result of an operand read as 0 at an index."""
        return replace(self, **{self.summed: cut(getattr(self, self.summed), index)}).sums()

    def on_kernel(self, change: Callable[[Array], Array]) -> Array:
        """The result with the kernel changed: the one read, or the one written."""
        return change(self.sums()) if self.role == "weights" else replace(self, w=change(self.w)).sums()

    def channels_left(self, part: slice) -> Array:
        """The result with channels left 0."""
        return cut(self.sums(), part if self.role == "weights" else (slice(None), part))

    def square(self, channels: int, side: int) -> Plant:
        """A part of the problem whose src and dst have one shape."""
        x, y = self.x[:, :channels, :side, :side], self.y[:, :channels, :side, :side]
        w = np.resize(self.w, (channels, channels, 3, 3))
        return replace(self, x=x, y=y, w=w, groups=1, stride=(1, 1), dilation=(1, 1), begin=(1, 1), end=(1, 1))

    def arguments(self, dtype: Any = None) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """Return the operator, the inputs, of another type if given, and the attributes of the call."""
        attributes = {
            "strides": self.stride, "dilations": self.dilation, "pads_begin": self.begin, "pads_end": self.end,
            "groups": self.groups, "data_format": "NCX", "weights_format": "OIX",
        }  # fmt: skip
        x, y, w = (a if dtype is None else a.astype(dtype) for a in (self.x, self.y, self.w))
        inputs = {
            "weights": (x, y, w.shape),
            "dst": (x, w) if self.bias is None else (x, w, self.bias),
            "src": (y, w, x.shape),
        }[self.role]
        return OPERATORS[self.role], inputs, attributes

    def right(self) -> Array:
        """Return convgrad's result in f32."""
        operator, inputs, attributes = self.arguments(np.float32)
        return np.asarray(convgrad.run(operator, *inputs, **attributes))

    def prepared(self) -> Prepared:
        operator, inputs, attributes = self.arguments()
        return prepare(operator, inputs, attributes)

    def call(self, result: Array) -> Verdict:
        """Return the verdict on a result."""
        operator, inputs, attributes = self.arguments()
        return check(operator, result.astype(self.x.dtype), *inputs, **attributes, **self.extra)


def plant(role: str, terms: int, dtype: str = "f32", seed: int = 0) -> Plant:
    """Return a problem whose sums have about so many terms, on normal numbers."""
    rng = np.random.default_rng([seed, terms, ROLES.index(role)])
    kernel, channels = (3, 3), terms // 9 + 3
    if role == "weights":
        batch, c, o = {200: 2, 2_000: 6, 20_000: 7}[terms], 12, 8
        side = round((terms / batch) ** 0.5)
        height, width = 2 * side + 1, side + 1
    else:
        batch, height, width = 2, 12, 9
        c, o = (2 * channels, 8) if role == "dst" else (12, 2 * channels)
    oh, ow = (height + 1 - 3) // 2 + 1, width + 3 - 5 + 1
    arrays = [(batch, c, height, width), (batch, o, oh, ow), (o, c // 2, *kernel)]
    x, y, w = (rng.standard_normal(shape).astype(DTYPES[dtype]) for shape in arrays)
    return Plant(role, x, y, w)


def plant_of(line: str, kind: str, seed: int = 0) -> Plant:
    """Return the f32 problem of a line on a kind of data; its sums are convgrad's own."""
    call = calls(read(line))[0]
    prepared = filled(find(call.operator), call.shapes, dict(call.attributes), call.format, kind, seed)
    problem, conv = prepared.problem, prepared.problem.geometry
    assert isinstance(conv, Conv)
    given = dict(zip(problem.operands, prepared.operands, strict=True))
    shapes = {"src": conv.src_shape, "dst": conv.dst_shape, "weights": conv.weights_shape}
    arrays = [given.get(tensor, np.zeros(shape, np.float32)) for tensor, shape in shapes.items()]
    names = ("stride", "dilation", "pad_begin", "pad_end")
    each = [tuple(getattr(axis, name) for axis in conv.axes) for name in names]
    return Plant(problem.solves_for, *arrays, *each, groups=conv.groups, by_engine=True)

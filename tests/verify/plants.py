"""Problems to plant defects in: a convolution whose attributes all differ, and its sums by slices of a padded src."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from convgrad.verify import Verdict, check

Array = np.ndarray
ROLES = ("weights", "dst", "src")
SIZES = (200, 2_000, 20_000)  # terms, about
TYPES = ("f32", "bf16")
DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
OPERATORS = {"weights": "ConvolutionBackwardWeights", "dst": "Convolution", "src": "ConvolutionBackwardData"}


@dataclass(frozen=True)
class Plant:
    """A convolution with two spatial axes whose attributes all differ, and its arrays, canonical."""

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
    fill: float = 0.0  # what padding holds
    extra: dict[str, Any] = field(default_factory=dict)  # of the call

    @property
    def kernel(self) -> tuple[int, int]:
        return self.w.shape[2:]

    def sums(self) -> Array:
        """The result in float64, from slices of the padded src."""
        x, y, w = (a.astype(np.float64) for a in (self.x, self.y, self.w))
        n, c, *extents = x.shape
        o, (oh, ow), g = y.shape[1], y.shape[2:], self.groups
        (sh, sw), (dh, dw), (kh, kw) = self.stride, self.dilation, self.kernel
        high = [
            max(s * (p - 1) + d * (k - 1) + 1, b + i)
            for s, p, d, k, b, i in zip(
                self.stride, (oh, ow), self.dilation, self.kernel, self.begin, extents, strict=True
            )
        ]
        wide = np.full((n, c, *high), self.fill)
        inner = (slice(None), slice(None), *(slice(b, b + i) for b, i in zip(self.begin, extents, strict=True)))
        wide[inner] = 0 if self.role == "src" else x
        out = {"weights": np.zeros_like(w), "dst": np.zeros_like(y), "src": wide}[self.role]
        for one, h, v in product(range(g), range(kh), range(kw)):
            cs, os = (slice(one * m // g, (one + 1) * m // g) for m in (c, o))
            at = (
                slice(None),
                cs,
                slice(h * dh, h * dh + sh * (oh - 1) + 1, sh),
                slice(v * dw, v * dw + sw * (ow - 1) + 1, sw),
            )
            if self.role == "weights":
                out[os, :, h, v] = np.tensordot(y[:, os], wide[at], ((0, 2, 3), (0, 2, 3)))
            elif self.role == "dst":
                out[:, os] += np.moveaxis(np.tensordot(wide[at], w[os, :, h, v], (1, 1)), 3, 1)
            else:
                out[at] += np.moveaxis(np.tensordot(y[:, os], w[os, :, h, v], (1, 0)), 3, 1)
        out = out[inner] if self.role == "src" else out
        return out if self.bias is None else out + self.bias.astype(np.float64).reshape(1, -1, 1, 1)

    def call(self, result: Array) -> Verdict:
        """Return the verdict on a result."""
        attributes = {
            "strides": self.stride, "dilations": self.dilation, "pads_begin": self.begin, "pads_end": self.end,
            "groups": self.groups, "data_format": "NCX", "weights_format": "OIX",
        }  # fmt: skip
        inputs = {
            "weights": (self.x, self.y, self.w.shape),
            "dst": (self.x, self.w) + ((self.bias,) if self.bias is not None else ()),
            "src": (self.y, self.w, self.x.shape),
        }[self.role]
        return check(OPERATORS[self.role], result.astype(self.x.dtype), *inputs, **attributes, **self.extra)


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

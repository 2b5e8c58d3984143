"""Random layers with operands, for parametrized tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import notation
from convgrad.descriptor import AxisSize, Descriptor
from convgrad.formats import FORMATS
from convgrad.spec.geometry import effective_kernel
from convgrad.spec.layouts import DATA
from convgrad.spec.operators import CONV_WEIGHTS, TRANSPOSE_WEIGHTS

Array = NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """A layer with its arrays. ``name`` is a problem line of its weight gradient, which ``convgrad verify`` accepts."""

    name: str
    src: Array = field(repr=False)
    weights: Array = field(repr=False)
    diff_dst: Array = field(repr=False)
    attributes: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        """Return the name."""
        return self.name


def layers(
    count: int,
    *,
    seed: int = 0,
    types: Sequence[str] = ("f32",),
    data_formats: Sequence[str] = tuple(DATA),
    axes: Sequence[int] = (1, 2, 3),
    transposed: bool = False,
) -> list[Layer]:
    """Return small random layers with normally distributed arrays. The arguments determine all values.

    Strides, dilations, groups and pads at both ends vary. ``types`` are the types of the arrays (f32, bf16, f16 or
    f64), and ``axes`` the numbers of spatial axes. Weights are in the default format of the data format: XIO for NXC,
    and OIX for NCX (XOI and IOX if ``transposed``). ``attributes`` has all attributes of a layer.

    >>> [layer] = layers(1, types=["bf16"], axes=[2])
    >>> print(layer)
    BWD_W bf16 NXC g2mb3ic10ih4iw15oc16oh2ow5kh3kw1sh1sw3dh0dw1ph0pw0
    >>> layer.weights.shape, layer.attributes["strides"]
    ((3, 1, 5, 16), [1, 3])
    """
    choices = TRANSPOSE_WEIGHTS if transposed else CONV_WEIGHTS
    made = []
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        data_format = str(rng.choice(data_formats))
        groups = int(rng.choice([1, 1, 2, 3]))
        sizes = tuple(_axis(rng, transposed) for _ in range(rng.choice(axes)))
        channels = [groups * int(number) for number in rng.integers(1, 9, 2)]
        descriptor = Descriptor(int(rng.integers(1, 4)), groups, channels[0], channels[1], sizes)
        fmt = FORMATS[str(rng.choice(types))]
        line = notation.Line(transposed, "BWD_W", fmt, data_format, choices[data_format == "NCX"], descriptor)
        [call] = notation.calls(line)
        src, diff_dst, weights = (rng.standard_normal(shape).astype(fmt.dtype) for shape in call.shapes)
        made.append(Layer(notation.write(line), src, weights, diff_dst, call.attributes))
    return made


def _axis(rng: np.random.Generator, transposed: bool) -> AxisSize:
    """Return a random axis. Its longer extent is the smallest one for its shorter extent, or up to a stride longer."""
    kernel, stride, dilation = (int(rng.integers(1, end)) for end in (5, 4, 3))
    effective = effective_kernel(kernel, dilation)
    remainder = int(rng.integers(0, stride))
    pad_begin, pad_end = rng.integers(0, effective // 2 + 1, 2).tolist()
    if remainder:
        pad_end = 0  # a problem line has either a remainder or a pad at the end
    short = int(rng.integers(2, 9))
    long = stride * (short - 1) + effective - pad_begin - pad_end + remainder
    source, result = (short, long) if transposed else (long, short)
    return AxisSize(source, result, kernel, stride, pad_begin, pad_end, dilation)

"""Random layers with operands, for parametrized tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convgrad import notation
from convgrad.array_types import Array
from convgrad.descriptor import AxisSize, Descriptor
from convgrad.errors import InvalidAttributeError
from convgrad.formats import FORMATS
from convgrad.spec.check import as_integer
from convgrad.spec.geometry import effective_kernel
from convgrad.spec.layouts import DATA
from convgrad.spec.operators import CONV_WEIGHTS, TRANSPOSE_WEIGHTS


@dataclass(frozen=True)
class Layer:
    """A layer with its arrays.

    Args:
        name: The problem line of its weight gradient, which ``convgrad verify`` accepts.
        src: The input of the layer, of shape (N, I..., C) in NXC.
        weights: The weights of the layer, of shape (K..., C/groups, O) in XIO.
        diff_dst: The gradient of the layer's output, of shape (N, O..., O) in NXC.
        attributes: All attributes of the layer by name.
    """

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
    weights_formats: Sequence[str] | None = None,
    axes: Sequence[int] = (1, 2, 3),
    groups: Sequence[int] = (1, 1, 2, 3),
    images: Sequence[int] = range(1, 4),
    channels: Sequence[int] = range(1, 9),
    extents: Sequence[int] = range(2, 9),
    kernels: Sequence[int] = range(1, 5),
    strides: Sequence[int] = range(1, 4),
    dilations: Sequence[int] = range(1, 3),
    transposed: bool = False,
) -> list[Layer]:
    """Return small random layers with normally distributed arrays. The arguments determine all values.

    Each argument except ``count``, ``seed`` and ``transposed`` has the values from which a layer's value is drawn. A
    value that is given twice is drawn twice as often. Pads at both ends are random, up to half of the dilated kernel.

    Args:
        count: The number of layers.

    Keyword Args:
        seed: The seed of all values. Default: 0.
        types: Types of the arrays: f32, bf16, f16, f64, f8_e4m3 or f8_e5m2. Default: ("f32",).
        data_formats: Layouts of src and diff_dst, NXC or NCX. Default: ("NCX", "NXC").
        weights_formats: Layouts of weights: XIO or OIX, and XOI or IOX if ``transposed``. None pairs XIO and XOI with
            NXC, and OIX and IOX with NCX. Default: None.
        axes: Numbers of spatial axes. Default: (1, 2, 3).
        groups: Numbers of groups. Default: (1, 1, 2, 3).
        images: Numbers of images. Default: range(1, 4).
        channels: Numbers of channels per group, of src and of dst. For example, ``groups=[32], channels=[1]`` are
            depthwise layers. Default: range(1, 9).
        extents: Extents of dst on a spatial axis; those of src if ``transposed``. The extents of the other side follow.
            Default: range(2, 9).
        kernels: Numbers of taps on an axis. Default: range(1, 5).
        strides: Strides on an axis. Default: range(1, 4).
        dilations: Dilations on an axis. Default: range(1, 3).
        transposed: Whether the layers are transposed convolutions. Default: False.

    Raises:
        InvalidAttributeError: An argument has no values, or a value that no layer can have.

    >>> [layer] = layers(1, types=["bf16"], axes=[2])
    >>> print(layer)
    BWD_W bf16 NXC g2mb3ic10ih4iw15oc16oh2ow5kh3kw1sh1sw3dh0dw1ph0pw0
    >>> layer.weights.shape, layer.attributes["strides"]
    ((3, 1, 5, 16), [1, 3])
    >>> [depthwise] = layers(1, data_formats=["NCX"], groups=[16], channels=[1], extents=[14], kernels=[3], axes=[2])
    >>> depthwise.weights.shape, depthwise.diff_dst.shape[2:]
    ((16, 1, 3, 3), (14, 14))
    """
    choices = TRANSPOSE_WEIGHTS if transposed else CONV_WEIGHTS
    named = {"types": (types, tuple(FORMATS)), "data_formats": (data_formats, tuple(DATA))}
    for name, (values, legal) in (named | {"weights_formats": (weights_formats or choices, choices)}).items():
        _check(name, values, legal)
    numbers = {"axes": axes, "groups": groups, "images": images, "channels": channels, "extents": extents}
    numbers |= {"kernels": kernels, "strides": strides, "dilations": dilations}
    for name, integers in numbers.items():
        _check(name, integers)
    drawn = []
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        data_format = str(rng.choice(data_formats))
        parts = int(rng.choice(groups))
        sizes = tuple(_axis(rng, transposed, kernels, strides, dilations, extents) for _ in range(rng.choice(axes)))
        source, result = (parts * int(channels[at]) for at in rng.integers(0, len(channels), 2).tolist())
        descriptor = Descriptor(_drawn(rng, images), parts, source, result, sizes)
        fmt = FORMATS[str(rng.choice(types))]
        layout = str(rng.choice(weights_formats)) if weights_formats else choices[data_format == "NCX"]
        line = notation.Line(transposed, "BWD_W", fmt, data_format, layout, descriptor)
        [call] = notation.calls(line)
        src, diff_dst, weights = (rng.standard_normal(shape).astype(fmt.dtype) for shape in call.shapes)
        drawn.append(Layer(notation.write(line), src, weights, diff_dst, call.attributes))
    return drawn


def _check(name: str, values: Sequence[object], legal: Sequence[str] = ()) -> None:
    """Raise InvalidAttributeError if there are no values, or one that is not legal. Without ``legal``, integers are."""
    wrong = [value for value in values if (value not in legal if legal else (as_integer(value) or 0) < 1)]
    if wrong or not len(values) or isinstance(values, str):
        wanted = f"must have values of {', '.join(legal)}" if legal else "must be a list of positive integers"
        got = repr(wrong[0] if wrong else values)
        raise InvalidAttributeError(f"layers: {name} {wanted}; got {got:.200}")


def _drawn(rng: np.random.Generator, values: Sequence[int]) -> int:
    return int(values[int(rng.integers(0, len(values)))])


def _axis(
    rng: np.random.Generator,
    transposed: bool,
    kernels: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extents: Sequence[int],
) -> AxisSize:
    """Return a random axis. Its longer extent is the smallest one for its shorter extent, or up to a stride longer."""
    kernel, stride, dilation = (_drawn(rng, values) for values in (kernels, strides, dilations))
    effective = effective_kernel(kernel, dilation)
    remainder = int(rng.integers(0, stride))
    pad_begin, pad_end = rng.integers(0, effective // 2 + 1, 2).tolist()
    if remainder:
        pad_end = 0  # a problem line has either a remainder or a pad at the end
    short = _drawn(rng, extents)
    room = stride * (short - 1) + effective + remainder - 1  # the largest pads that leave a position
    pad_begin = min(pad_begin, room)
    pad_end = min(pad_end, room - pad_begin)
    long = stride * (short - 1) + effective - pad_begin - pad_end + remainder
    source, result = (short, long) if transposed else (long, short)
    return AxisSize(source, result, kernel, stride, pad_begin, pad_end, dilation)

"""Random weight and bias gradients by class of layer: what networks ask for, sizes straddling a kernel's lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convgrad.formats import FORMATS
from convgrad.spec.geometry import effective_kernel
from convgrad.spec.layouts import from_canonical
from convgrad.spec.operators import OPERATORS, find
from helpers import Case

WEIGHTS = [op for op in OPERATORS if op.solves_for == "weights"]
TYPES = ("f32", "bf16", "f16")
MULTIPLY_ADDS, ELEMENTS = 1_000_000, 60_000
MOST_POSITIONS = {1: 30, 2: 9, 3: 5, 4: 3}  # of an axis, by the number of axes,
MANY_POSITIONS = {1: 600, 2: 24, 3: 8, 4: 4}  # and of images that are more than one block


@dataclass(frozen=True)
class Layer:
    """A class of layers by what it draws from: channels of a group, kernel extents, strides and so on."""

    axes: Sequence[int] = (2,)
    groups: Sequence[int] = (1,)
    inner: Sequence[int] = (5, 8, 16, 17, 24, 33)  # src channels of a group
    outer: Sequence[int] = (6, 8, 16, 19, 32)
    kernel: Sequence[int] = (1, 2, 3, 4)
    strides: Sequence[int] = (1, 1, 2)
    dilations: Sequence[int] = (1,)
    pads_begin: Sequence[int] = (0, 1, 2)
    pads_end: Sequence[int] = (0, 1, 2)
    kernel_is_stride: bool = False


NO_PADS: dict[str, Sequence[int]] = {"pads_begin": (0,), "pads_end": (0,)}
DEPTH: dict[str, Sequence[int]] = {"groups": (3, 8, 16, 17, 40), "inner": (1,)}

CLASSES = {
    "dense": Layer(),
    "dense 1-D": Layer(axes=(1,), kernel=(1, 3, 5)),
    "dense 3-D": Layer(axes=(3,), inner=(3, 8, 17), outer=(4, 16, 18), kernel=(1, 2, 3)),
    "dense 4-D": Layer(axes=(4,), inner=(2, 8), outer=(3, 17), kernel=(1, 2)),
    "depthwise": Layer(**DEPTH, outer=(1,), kernel=(3, 5)),
    "depthwise 1-D": Layer(axes=(1,), **DEPTH, outer=(1,), kernel=(2, 3, 4)),
    "depthwise 3-D": Layer(axes=(3,), **DEPTH, outer=(1,), kernel=(1, 2, 3)),
    "depthwise dilated": Layer(**DEPTH, outer=(1,), kernel=(2, 3), dilations=(1, 2, 3)),
    "channel multiplier": Layer(**DEPTH, outer=(2, 3, 4), kernel=(1, 3)),
    "few channels a group": Layer(groups=(2, 3, 5), inner=(2, 4, 8), outer=(2, 4, 8)),
    "odd channels a group": Layer(groups=(2, 3), inner=(3, 5, 7, 9), outer=(3, 7, 11)),
    "thin src": Layer(inner=(1, 2, 3, 4), outer=(8, 16, 31, 48), kernel=(3, 5, 7)),
    "thin dst": Layer(inner=(8, 16, 31, 48), outer=(1, 2, 3, 4), kernel=(1, 3)),
    "patches": Layer(axes=(1, 2, 3), inner=(1, 3, 4, 16), outer=(8, 17, 32), kernel_is_stride=True, **NO_PADS),
    "1x1": Layer(kernel=(1,), strides=(1,), inner=(15, 16, 40), outer=(16, 24, 33), **NO_PADS),
    "1x1 strided": Layer(axes=(1, 2, 3), kernel=(1,), strides=(2, 3), inner=(1, 7, 15, 16), outer=(8, 17), **NO_PADS),
    "dilated": Layer(axes=(1, 2), kernel=(2, 3), dilations=(2, 3, 4)),
    "asymmetric pads": Layer(axes=(1, 2), kernel=(3, 4), pads_begin=(0, 3, 5), pads_end=(0, 1, 4)),
    "stride beyond kernel": Layer(axes=(1, 2), kernel=(1, 2), strides=(3, 4, 5)),
}
BIAS = "bias gradient"
NAMES = (*CLASSES, BIAS)


def random_layer(rng: np.random.Generator, name: str, operand: str = "", output: str = "") -> Case:
    """Return a random legal gradient of a class under any of its operators' names, types as given or any."""
    operand = operand or str(rng.choice(TYPES))
    if name == BIAS:
        return _random_bias(rng, operand, output)
    while True:
        case = _random_layer(rng, CLASSES[name], operand, output)
        if case is not None:
            return case


def _random_layer(rng: np.random.Generator, layer: Layer, operand: str, output: str) -> Case | None:
    op = WEIGHTS[rng.integers(len(WEIGHTS))]
    axes = int(rng.choice(layer.axes))
    most = MANY_POSITIONS[axes] if rng.random() < 0.25 else MOST_POSITIONS[axes]
    dst = rng.integers(1, most + 1, axes)
    kernel, strides, dilations, begin, end = (
        rng.choice(choices, axes)
        for choices in (layer.kernel, layer.strides, layer.dilations, layer.pads_begin, layer.pads_end)
    )
    if layer.kernel_is_stride:
        strides = kernel
    src = []
    for o, k, s, d, pads in zip(*(a.tolist() for a in (dst, kernel, strides, dilations, begin + end)), strict=True):
        rest = int(rng.integers(0, max(s, d) if op.transposed else s))
        src.append(s * (o - 1) + effective_kernel(k, d) - pads + rest)
    groups, inner, outer = (int(rng.choice(choices)) for choices in (layer.groups, layer.inner, layer.outer))
    batch = int(rng.choice([1, 1, 2, 3, 5, 18]))
    shapes = {
        "src": (batch, groups * inner, *src),
        "dst": (batch, groups * outer, *dst.tolist()),
        "weights": (groups * outer, inner, *kernel.tolist()),
    }
    if min(src) < 1 or max(map(np.prod, shapes.values())) > ELEMENTS:
        return None
    if batch * np.prod(dst) * np.prod(shapes["weights"]) > MULTIPLY_ADDS:
        return None
    weights_format = op.attribute("weights_format")
    assert weights_format is not None
    data_layout, weights_layout = (str(rng.choice(choices)) for choices in (["NXC", "NCX"], weights_format.choices))
    lying = {t: from_canonical(s, weights_layout if t == "weights" else data_layout) for t, s in shapes.items()}
    attributes: dict[str, Any] = {
        "strides": strides.tolist(), "dilations": dilations.tolist(), "groups": groups, "auto_pad": "none",
        "pads_begin": begin.tolist(), "pads_end": end.tolist(),
        "data_format": data_layout, weights_format.name: weights_layout,
    }  # fmt: skip
    return Case(op, tuple(lying[p.tensor] for p in op.operands), attributes, FORMATS[operand], output or None)


def _random_bias(rng: np.random.Generator, operand: str, output: str) -> Case:
    axes, layout = int(rng.integers(1, 4)), str(rng.choice(["NXC", "NCX"]))
    extents = rng.integers(1, 2 * MOST_POSITIONS[axes], axes).tolist()
    shape = from_canonical((int(rng.integers(1, 6)), int(rng.choice([1, 3, 16, 33, 70])), *extents), layout)
    return Case(find("BiasAddBackward"), (shape,), {"data_format": layout}, FORMATS[operand], output or None)

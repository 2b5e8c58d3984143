"""The classes of layers as one table, and problems drawn from it: as values, as calls, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from convgrad.descriptor import AxisSize, Descriptor
from convgrad.formats import FORMATS, Format
from convgrad.notation import Line, write
from convgrad.spec.geometry import Axis, Conv, convolution_pad_total, effective_kernel, split_pads, transposed_pad_total
from convgrad.spec.layouts import DATA, from_canonical
from convgrad.spec.operators import CONV_WEIGHTS, OPERATORS, TRANSPOSE_WEIGHTS, Operator, find
from convgrad.spec.problem import canonical_shape
from tests.support.helpers import Case

TYPES = ("f32", "bf16", "f16")
ALL_TYPES = (*TYPES, "f8_e4m3", "f8_e5m2")
WEIGHTS = [op for op in OPERATORS if op.solves_for == "weights"]
CONVOLUTIONS = [op for op in OPERATORS if op.solves_for in ("dst", "src", "weights")]
ELEMENTS = 1 << 18  # the most of an operand
QUICK_ELEMENTS = 60_000  # of any tensor of a call that is to be quickly computed
EXTENTS = {1: 300, 2: 24, 3: 8, 4: 5}  # the most positions of an axis, by the number of axes
SAME = ("same_upper", "same_lower")
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 33, 48, 65)
LANES = (1, 3, 8, 15, 16, 17, 31, 33, 40, 67, 100)
GROUPS = (2, 3, 5, 8, 15, 16, 17, 31, 33, 40)
FEW = (2, 3, 4, 5, 6, 7, 8, 24)
PRIMES = (2, 3, 5, 7, 11, 13, 17, 23, 31, 37, 61, 67, 97, 127, 131)


@dataclass(frozen=True)
class Class:
    """What problems of a class are drawn from; channels are of a group."""

    groups: Sequence[int] = (1,)
    inner: Sequence[int] = CHANNELS
    outer: Sequence[int] = CHANNELS
    axes: Sequence[int] = (1, 2, 2, 2, 3)
    batch: Sequence[int] = (1, 2, 3, 17, 40)
    extents: Sequence[int] = ()  # of dst; without, any up to EXTENTS
    kernel: Sequence[int] = range(1, 6)
    strides: Sequence[int] = (1, 1, 2)
    dilations: Sequence[int] = (1,)
    pads: Sequence[str] = ("any", "none", *SAME)
    patches: bool = False  # strides are the kernel's extents


CLASSES = {
    "dense": Class(
        (1, 1, 1, 2, 3, 5), axes=(1, 2, 3, 4),
        kernel=(1, 1, 1, *range(1, 8)), strides=range(1, 5), dilations=(1, 1, 2, 3, 4),
    ),
    "depthwise": Class(
        LANES, (1,), (1,), (1, 2, 2, 2), kernel=range(1, 12), strides=range(1, 5), dilations=range(1, 5)
    ),
    "multiplied": Class(GROUPS, (1,), (2, 3, 4), kernel=range(1, 8), strides=range(1, 5)),
    "folded": Class(GROUPS, (2, 3, 4), (1,)),  # multiplied, transposed
    "grouped": Class(GROUPS, FEW, FEW),
    "equal groups": Class(GROUPS, (5, 7, 8, 24), (8,), strides=(1,), kernel=(1, 3)),
    "thin source": Class(inner=(1, 2, 3, 4), kernel=range(1, 8), strides=range(1, 5)),
    "thin destination": Class(outer=(1, 2, 3, 4), kernel=range(1, 8)),
    "patches": Class(
        inner=(1, 2, 3, 4, 8), kernel=(1, 2, 3, 4, 5, 7, 8, 14, 16), axes=(1, 2, 2), pads=("none",), patches=True
    ),
    "pointwise": Class((1, 1, 3), kernel=(1,), strides=range(1, 5)),
    "rows": Class(
        (1, 1, 4), (1, 2, 3, 8, 16), (1, 2, 3, 8, 16), (1,), (1, 2, 5),
        extents=(1, 2, 31, 255, 256, 257, 700, 1000, 2000), kernel=(1, 2, 9, 31, 64, 100, 255, 300),
    ),
    "volumes": Class((1, 1, 2), axes=(3, 4), kernel=range(1, 5)),
    "tiny": Class((1, 1, 5), extents=(1, 2, 3), dilations=(1, 1, 2), strides=(1, 2, 3)),
    "one element": Class(
        inner=(1,), outer=(1,), extents=(1, 16, 17, 100, 256, 300, 2000), kernel=(1,), strides=(1,),
        batch=(1, 17, 40, 256, 300),
    ),
    "prime channels": Class(inner=PRIMES, outer=PRIMES, axes=(1, 2, 2)),
    "dilated": Class((1, 1, 8), kernel=range(2, 6), dilations=range(1, 17)),
    "stride beyond kernel": Class(kernel=(1, 2, 3), strides=(4, 5, 6, 7), dilations=(1, 1, 2)),
}  # fmt: skip


BIAS = "bias gradient"
NAMES = (*CLASSES, BIAS)


@dataclass
class Hands:
    """Choices dealt like cards: every choice of a field comes once before any comes twice."""

    rng: np.random.Generator
    left: dict[str, list[int]] = field(default_factory=dict)

    def deal(self, name: str, choices: Sequence[int]) -> int:
        hand = self.left.setdefault(name, [])
        if not hand:
            hand += map(int, self.rng.permutation(list(choices)))
        return hand.pop()


def draw(
    one: Class, rng: np.random.Generator, most: int, least: int = 0, most_elements: int = ELEMENTS
) -> Iterator[Conv]:
    """Yield problems of a class without end, of at most ``most`` multiply-adds, where one position has no more.

    Some have ``least`` and more, where that many elements will do.
    """
    hands = Hands(rng)
    while True:
        conv = _drawn(one, hands, rng)
        while (conv.multiply_adds > most or elements(conv) > most_elements) and conv.batch * conv.positions > 1:
            conv = _halved(conv)
        while conv.multiply_adds < least and elements(conv) <= most_elements // 2:
            conv = replace(conv, batch=2 * conv.batch)
        yield conv


def elements(conv: Conv) -> int:
    """Return the elements of the larger operand."""
    return max(prod(conv.src_shape), prod(conv.dst_shape))


def _drawn(one: Class, hands: Hands, rng: np.random.Generator) -> Conv:
    names = ("groups", "inner", "outer", "axes", "batch")
    groups, inner, outer, axes, batch = (hands.deal(name, getattr(one, name)) for name in names)
    how = one.pads[hands.deal("pads", range(len(one.pads)))]
    made = []
    for _ in range(axes):
        kernel = hands.deal("kernel", one.kernel)
        stride = kernel if one.patches else hands.deal("strides", one.strides)
        dilation = hands.deal("dilations", one.dilations)
        dst = hands.deal("extents", one.extents) if one.extents else int(rng.integers(1, EXTENTS[axes] + 1))
        effective, rest = effective_kernel(kernel, dilation), int(rng.integers(0, stride))
        begin, end = rng.integers(0, effective + 2, 2).tolist() if how == "any" else (0, 0)
        if how in SAME:  # of a source of s(O - 1) + 1 + rest positions
            begin, end = split_pads(max(effective - 1 - rest, 0), how)
            rest = max(rest + 1 - effective, 0)
        made.append(_axis(dst, kernel, stride, dilation, begin, end, rest))
    return Conv(batch, groups, groups * inner, groups * outer, tuple(made))


def _axis(dst: int, kernel: int, stride: int, dilation: int, begin: int, end: int, rest: int) -> Axis:
    """Return the axis of these attributes, with ``rest`` source positions behind the last read; unpadded if need be."""
    fitting = stride * (dst - 1) + effective_kernel(kernel, dilation) + rest
    if fitting <= begin + end:
        begin = end = 0
    return Axis(fitting - begin - end, dst, kernel, stride, dilation, begin, end)


def rest_of(a: Axis) -> int:
    """Return the source positions behind the last that is read: the output padding of a transposed operator."""
    return a.src + a.pad_begin + a.pad_end - a.stride * (a.dst - 1) - a.effective_kernel


def _halved(conv: Conv) -> Conv:
    """Return a problem of about half the terms: of fewer positions along its longest axis, or of fewer images."""
    longest = max(range(len(conv.axes)), key=lambda x: conv.axes[x].dst)
    a = conv.axes[longest]
    if a.dst == 1:
        return replace(conv, batch=(conv.batch + 1) // 2)
    shorter = _axis((a.dst + 1) // 2, a.kernel, a.stride, a.dilation, a.pad_begin, a.pad_end, rest_of(a))
    return replace(conv, axes=(*conv.axes[:longest], shorter, *conv.axes[longest + 1 :]))


# -- as calls ----------------------------------------------------------------------------------------------------------


def layouts_of(op: Operator) -> tuple[tuple[str, str], ...]:
    """Return the layouts of data and weights: all channels last, all channels first, and the two mixed."""
    weights = op.attribute("weights_format")
    assert weights is not None
    (ncx, nxc), (xio, oix) = DATA, weights.choices
    return ((nxc, xio), (ncx, oix), (nxc, oix), (ncx, xio))


def case_of(
    conv: Conv, op: Operator, layouts: tuple[str, str], operand: Format, output: Format, last_given: bool = True
) -> Case:
    """Return the call of an operator; without the last operand, an attribute says a shape, and there is no bias."""
    data, weights = layouts
    weights_format = op.attribute("weights_format")
    assert weights_format is not None
    tensors = ("src", "dst", "weights")
    lying = {t: from_canonical(canonical_shape(conv, t), weights if t == "weights" else data) for t in tensors}
    lying["bias"] = (conv.src_channels if op.transposed else conv.dst_channels,)
    attributes: dict[str, Any] = {
        "strides": [a.stride for a in conv.axes],
        "dilations": [a.dilation for a in conv.axes],
        "pads_begin": [a.pad_begin for a in conv.axes],
        "pads_end": [a.pad_end for a in conv.axes],
        "groups": conv.groups,
        "data_format": data,
        weights_format.name: weights,
    }
    ports = list(op.operands)
    if not ports[-1].required and not last_given:
        *ports, last = ports
        if last.is_shape:
            shape = next(a for a in op.attributes if a.means in ("weights_shape", "dst_shape"))
            attributes[shape.name] = list(lying[last.tensor])
    dtype = None if output is operand else output.name
    return Case(op, tuple(lying[p.tensor] for p in ports), attributes, operand, dtype)


def auto_pads_of(conv: Conv, op: Operator) -> list[str]:
    """Return the automatic pads of an operator that come to those of a problem."""

    def pads(a: Axis, how: str) -> tuple[int, int]:
        if op.transposed:
            return split_pads(transposed_pad_total(a.effective_kernel, a.stride), how)
        return split_pads(convolution_pad_total(a.src, a.effective_kernel, a.stride), how)

    def fits(a: Axis, how: str) -> bool:
        if how == "valid":
            return a.pad_begin == a.pad_end == 0
        return (op.transposed or a.dst == -(-a.src // a.stride)) and (a.pad_begin, a.pad_end) == pads(a, how)

    return [how for how in ("valid", *SAME) if all(fits(a, how) for a in conv.axes)]


def any_case(
    conv: Conv, rng: np.random.Generator, operand: Format, output: Format, ops: Sequence[Operator] = WEIGHTS
) -> Case:
    """Return the call of one of some operators, in any layouts, its attributes given in any way.

    A transposed operator may leave more source positions behind the last that is read.
    """
    op = ops[rng.integers(len(ops))]
    if op.transposed:
        more = [int(rng.integers(0, max(a.dilation - a.stride, 0) + 1)) for a in conv.axes]
        conv = replace(conv, axes=tuple(replace(a, src=a.src + n) for a, n in zip(conv.axes, more, strict=True)))
    layouts = layouts_of(op)[rng.integers(4)]
    case = case_of(conv, op, layouts, operand, output, last_given=bool(rng.random() < 0.5))
    fitting, attributes = auto_pads_of(conv, op), dict(case.attributes)
    if fitting and rng.random() < 0.75:
        attributes["auto_pad"] = str(rng.choice(fitting))
        if rng.random() < 0.5:
            attributes |= {"pads_begin": None, "pads_end": None}
    if op.transposed and (not _follows(conv, op) or rng.random() < 0.5):
        attributes["output_padding"] = [rest_of(a) for a in conv.axes]
    return replace(case, attributes={name: value for name, value in attributes.items() if value is not None})


def _follows(conv: Conv, op: Operator) -> bool:
    """Tell whether a transposed operator's result has its extents without an output padding."""
    rests = [(rest_of(a), a.stride) for a in conv.axes]
    if op.solves_for == "src":
        return not any(rest for rest, _ in rests)
    return op.solves_for == "weights" or all(rest < stride for rest, stride in rests)


def layer_case(name: str, rng: np.random.Generator, operand: str, output: str) -> Case:
    """Return a call of a class, or a bias gradient, that the oracle computes quickly."""
    if name == BIAS:
        return _bias_case(rng, operand, output)
    drawn = draw(CLASSES[name], rng, 1_000_000, most_elements=QUICK_ELEMENTS)
    conv = next(conv for conv in drawn if prod(conv.weights_shape) <= QUICK_ELEMENTS)
    return any_case(conv, rng, FORMATS[operand], FORMATS[output])


def _bias_case(rng: np.random.Generator, operand: str, output: str) -> Case:
    axes, layout = int(rng.integers(1, 4)), str(rng.choice(DATA))
    extents = rng.integers(1, {1: 60, 2: 18, 3: 10}[axes], axes).tolist()
    shape = from_canonical((int(rng.integers(1, 6)), int(rng.choice([1, 3, 16, 33, 70])), *extents), layout)
    return Case(find("BiasAddBackward"), (shape,), {"data_format": layout}, FORMATS[operand], output)


# -- as lines ----------------------------------------------------------------------------------------------------------


def line_of(conv: Conv, operand: str, data_format: str, transposed: bool = False) -> str:
    """Return the problem line of a weight gradient of at most three axes, its weights lying like its data.

    Lines deduce the end pads, and so cannot say that source positions are left behind the last that is read.
    """
    exact = [_axis(a.dst, a.kernel, a.stride, a.dilation, a.pad_begin, a.pad_end, 0) for a in conv.axes]
    turn = -1 if transposed else 1  # a transposed operator's src is the underlying convolution's dst
    axes = tuple(
        AxisSize(*(a.src, a.dst)[::turn], a.kernel, a.stride, a.pad_begin, a.pad_end, a.dilation) for a in exact
    )
    channels = (conv.src_channels, conv.dst_channels)[::turn]
    weights_format = (TRANSPOSE_WEIGHTS if transposed else CONV_WEIGHTS)[data_format == "NCX"]
    descriptor = Descriptor(conv.batch, conv.groups, *channels, axes)
    return write(Line(transposed, "BWD_W", FORMATS[operand], data_format, weights_format, descriptor))

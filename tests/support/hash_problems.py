"""Problems whose results are hashed, as words, and their operands: bits that depend on the words only."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from convgrad.formats import FORMATS, Format
from convgrad.notation import read, write
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import CONV_WEIGHTS, TRANSPOSE_WEIGHTS, Tensor
from convgrad.spec.problem import Problem, canonical_shape
from tests.net import problems_of
from tests.support.classes import BIAS, CLASSES, NAMES, TYPES, Class, Hands, draw, line_of
from tests.support.engine_helpers import Array, empty, lying

WIDE = "wide depthwise"  # layers whose kernels are strips, as a rule, where channels are neighbours
LAYERS = {**CLASSES, BIAS: CLASSES["dense"], WIDE: Class((16, 17, 31, 40, 67), (1,), (1,), (2,), kernel=(2, 3, 3, 5))}
WAYS = {"to": False, "onto": True}  # whether a result is added to what is there
SIZES = ((0, 200_000), (100_000, 1_000_000), (3_000_000, 6_000_000))  # multiply-adds: the last for several threads
MOST_WEIGHTS = 30_000
SPECIAL = 8  # one problem in so many has an infinity in its first operand, a NaN in its second


@dataclass(frozen=True)
class Family:
    """What problems of some roles are drawn with: a seed, directions in turn, that of a layer with a bias."""

    seed: int
    directions: tuple[str, ...]
    with_bias: str
    turn: tuple[str, ...] = (*NAMES, WIDE, WIDE)


GRADIENTS = Family(81, ("BWD_W",), "BWD_WB")  # of weights and bias
DATA = Family(82, ("FWD_D", "BWD_D", "FWD_B"), "FWD_B")
FEW = Family(  # of whose channels few are met at a time: windows, planes, products
    83, ("BWD_D", "FWD_D", "BWD_D", "FWD_B", "FWD_D"), "FWD_B",
    ("depthwise", "grouped", WIDE, "thin source", "multiplied", "thin destination", "equal groups", "patches",
     "folded"),
)  # fmt: skip

# What no line of a drawn layer says: output padding, positions behind the last that is met, taps apart, Winograd.
SAID = """
FWD_D f32 NXC mb2ic64ih12oc3oh12kh3ph1 to f32
FWD_D bf16 NCX mb2ic33ih9oc4oh9kh3ph1 to bf16
BWD_D f32 NXC mb2ic3ih30oc64oh15kh7sh2ph3 to f32
BWD_D f16 NXC mb2ic17ih20oc33oh10kh1sh2ph0 to f16
BWD_D f32 NCX mb1ic20ih31oc40oh10kh2sh3ph0 onto f32
BWD_D f32 NXC mb2ic16ih9oc17oh9kh3dh3ph4 to bf16
deconv FWD_B f32 NXC mb2ic33ih6oc17oh12kh3sh2ph1 to f32
deconv FWD_D bf16 NXC mb2ic16ih5oc32oh20kh4sh4ph0 to f32
deconv FWD_D f32 NCX mb2ic17ih5oc31oh25kh8sh4ph0 to f32
deconv FWD_B f16 NCX mb1ic31iw40oc9ow161kw6sw4dw1pw2 onto f16
deconv BWD_D f32 NXC mb2ic33ih6oc17oh12kh3sh2ph1 to f32
deconv BWD_D bf16 NCX mb2ic16ih5oc32oh20kh4sh4ph0 to bf16
FWD_B f32 NCX mb2ic300ih7oc40oh7kh1ph0 to f32
FWD_B f32 NCX mb3ic40ih13oc17oh13kh1ph0 to bf16
FWD_B f16 NCX mb2ic300ih11oc24oh11kh1ph0 onto f16
FWD_B f8_e4m3 NCX mb2ic40ih28oc17oh28kh1ph0 to f32
BWD_D bf16 NCX mb2ic24ih20oc96oh20kh1ph0 onto f32
FWD_D f32 NXC mb1ic513ih6oc20oh6kh3ph1 to f32
BWD_W f8_e4m3 NXC mb3ic17ih14oc33oh14kh3ph1 to f32
BWD_W f8_e5m2 NCX mb2ic33ih9oc20oh5kh3sh2ph1 onto f8_e5m2
BWD_W f8_e4m3 NCX g40mb2ic40ih13oc40oh13kh3ph1 to bf16
FWD_B f8_e4m3 NXC mb2ic64ih12oc35oh12kh3ph1 to f8_e4m3
FWD_D f8_e5m2 NCX g32mb2ic32ih12oc32oh12kh3ph1 to f16
FWD_B f8_e5m2 NXC mb1ic3ih23oc17oh12kh3sh2ph1 to f8_e5m2
BWD_D f8_e5m2 NXC mb2ic33ih10oc64oh10kh3ph1 onto f32
BWD_D f8_e4m3 NCX g4mb2ic16ih11oc24oh6kh3sh2ph1 to f8_e4m3
BWD_D f8_e4m3 NXC mb2ic3ih30oc64oh15kh7sh2ph3 to f8_e5m2
FWD_D f32 NXC mb2ic64ih14oc40oh14kh3ph1 by 4x4 to f32
FWD_B f32 NCX mb1ic40ih13oc64oh13kh3ph1 by 4x4 to f32
FWD_D f16 NCX mb2ic70ih15oc33oh15kh3ph1 by 4x4 onto f32
FWD_D bf16 NXC mb2ic64ih7oc64oh9kh3ph2 by 2x2 to bf16
BWD_D f32 NXC mb2ic33ih13oc64oh13kh3ph1 by 4x4 onto f32
BWD_D f32 NCX mb2ic64ih12oc40oh12kh3ph1 by 2x2 to f16
BWD_D f8_e4m3 NXC mb1ic32ih10oc130oh10kh3ph1 by 4x4 to f32
BWD_W f32 NXC mb3ic40ih15oc33oh15kh3ph1 by 4x4 to f32
BWD_W f32 NCX mb2ic33ih40oc40oh40kh3ph1 by 2x2 onto f32
BWD_W bf16 NXC mb5ic64ih8oc40oh6kh3ph0 by 4x4 to f32
deconv FWD_D f32 NXC mb2ic40ih9oc33oh9kh3ph1 by 4x4 to f32
deconv BWD_W f32 NCX mb2ic40ih9oc33oh9kh3ph1 by 4x4 to f32
FWD_D f32 NXC mb2ic33iw29oc40ow29kw3pw1 by 4 to f32
BWD_D f32 NCX mb3ic40iw31oc64ow29kw5pw1 by 2 to f32
BWD_W f16 NXC mb3ic40iw31oc64ow29kw5pw1 by 2 to f16
BWD_W f32 NCX mb9ic40iw70oc33ow70kw3pw1 by 4 to f32
FWD_D f32 NXC mb2ic33ih9oc40oh9kh5ph2 by 2x2 to f32
BWD_W f32 NCX mb2ic33ih9oc40oh9kh5ph2 by 2x2 to f32
FWD_D f32 NCX mb2ic40ih6iw11oc33oh6ow11kh1kw3ph0pw1 by 1x4 to f32
BWD_D f32 NXC mb2ic40ih11iw6oc33oh11ow6kh3kw1ph1pw0 by 4x1 to f32
BWD_W f32 NXC mb2ic40ih11iw6oc33oh11ow6kh3kw1ph1pw0 by 4x1 to f32
FWD_D bf16 NCX mb2ic40ih9iw11oc33oh9ow11kh7kw3ph3pw1 by 1x4 to f32
FWD_D f32 NXC mb1ic35id5ih6iw7oc33od5oh6ow7kd3kh3kw3pd1ph1pw1 by 1x4x4 to f32
BWD_D f32 NCX mb1ic35id5ih6iw7oc33od5oh6ow7kd3kh3kw3pd1ph1pw1 by 1x4x4 to f32
BWD_W f32 NXC mb2ic35id5ih6iw7oc33od5oh6ow7kd3kh3kw3pd1ph1pw1 by 1x2x2 to f32
BWD_D f32 NCX g32mb2ic32ih29oc32oh14kh3sh2dh1ph1 to f32
deconv FWD_B bf16 NCX g16mb2ic16ih9oc16oh17kh3sh2dh1ph1 to f32
BWD_D f16 NCX mb2ic8ih19oc3oh9kh3sh2dh1ph1 onto f16
""".strip().splitlines()

# Of bf16, without subnormal numbers: those that kernels multiply by pairs or tiles of AMX, padded or not.
NORMAL = " of normal numbers"
SHAPES = (
    "mb3ic32ih9oc48oh9kh3ph1",
    "mb2ic70ih15oc33oh8kh3sh2ph1",
    "mb2ic64ih12oc96oh12kh1ph0",
    "mb1ic40ih11oc40oh11kh5ph2",
    "g2mb2ic128ih7oc66oh7kh3ph1",
    "mb2ic130iw37oc20ow37kw3pw1",
)
NORMALS = [
    f"{direction} bf16 {data} {shape}{NORMAL} {'onto' if at % 3 == 2 else 'to'} {('bf16', 'f32')[at % 2]}"
    for at, (shape, direction, data) in enumerate(product(SHAPES, ("FWD_B", "BWD_D", "BWD_W"), ("NXC", "NCX")))
]


def drawn(number: int, family: Family = GRADIENTS) -> Iterator[str]:
    """Yield problems of all classes in turn, ``LINE to TYPE`` or ``LINE onto TYPE``.

    Each layer comes with two batches, which share a kernel as a rule: under an emulator compiling is what takes time.
    """
    rng = np.random.default_rng(family.seed)
    hands = Hands(rng)
    for at in range(number):
        if at % 2 == 0:
            name = family.turn[at // 2 % len(family.turn)]
            conv, (way, other) = _layer(name, hands, rng), list(WAYS)[:: 1 - 2 * hands.deal("way", range(2))]
            operand, data = TYPES[hands.deal("operand", range(3))], hands.deal(f"data of {name}", range(2))
            output = (operand, "f32", *TYPES)[hands.deal("output", range(5))]
            transposed, weights = hands.deal("transposed", (0, 0, 1)) == 1, hands.deal("weights", (0, 0, 1))
        else:
            conv, way = replace(conv, batch=conv.batch + 1 + conv.batch // 4), other
        line = read(line_of(conv, operand, ("NXC", "NCX")[data], transposed))
        weights_format = (TRANSPOSE_WEIGHTS if transposed else CONV_WEIGHTS)[data ^ weights]
        direction = family.with_bias if name == BIAS else family.directions[at // 2 % len(family.directions)]
        line = replace(line, direction=direction, weights_format=weights_format)
        yield f"{write(line)} {way} {output}"


def _layer(name: str, hands: Hands, rng: np.random.Generator) -> Conv:
    row = LAYERS[name]
    row = replace(row, axes=tuple(axes for axes in row.axes if axes <= 3))  # that a line can say
    least, most = SIZES[hands.deal(f"size of {name}", range(len(SIZES)))]
    return next(conv for conv in draw(row, rng, most, least) if prod(conv.weights_shape) <= MOST_WEIGHTS)


def problems(words: str) -> list[Problem]:
    """Return the problem of some words; two, where the line runs two operators."""
    line, way, output = words.rsplit(None, 2)
    line, _, algorithm = line.removesuffix(NORMAL).partition(" by ")
    told = {"output_format": FORMATS[output], "accumulate": WAYS[way], "algorithm": algorithm}
    return [replace(one, **told) for one in problems_of(line)]


def operands_and_out(one: Problem, words: str) -> tuple[list[Array], Array]:
    """Return canonical operands that lie as the problem says, and where its result goes: NaN, or an old value."""
    seed = zlib.crc32(words.encode())
    bits, operands = np.random.PCG64(seed), []
    for at, (tensor, layout) in enumerate(zip(one.operands, one.layouts, strict=False)):
        made = values(shape_of(one, tensor), one.operand_format, bits, None if seed % SPECIAL else at)
        operands.append(lying(normal(made) if NORMAL in words else made, layout))
    out = empty(one)
    if one.accumulate:
        out[...] = values(out.shape, one.output_format, bits)
    return operands, out


def values(shape: tuple[int, ...], kind: Format, bits: np.random.PCG64, fraction: int | None = None) -> Array:
    """Return numbers from 1/16 to 16 of either sign, one in 16 subnormal; with a ``fraction`` one infinity (0) or NaN.

    They are put together as integers from the raw stream of a bit generator, which is what NumPy promises to keep.
    """
    raw, fraction_bits = bits.random_raw(prod(shape)), kind.significand_bits - 1
    signs, fractions = raw >> 63, raw & (1 << fraction_bits) - 1
    exponents = np.where(raw >> 48 & 15, kind.max_exponent - 4 + (raw >> 56 & 7), 0)
    if fraction is not None:
        at = int(raw[0]) % raw.size  # of NumPy 1 the remainder would be a float64
        exponents[at], fractions[at] = 2 * kind.max_exponent + 1, fraction
    width = kind.dtype.itemsize
    words = signs << 8 * width - 1 | exponents << fraction_bits | fractions
    return words.astype(f"u{width}").view(kind.dtype).reshape(shape)


def shape_of(one: Problem, tensor: Tensor) -> tuple[int, ...]:
    """Return the canonical shape of a tensor, of a bias operand too."""
    conv = one.geometry
    if tensor == "bias" and isinstance(conv, Conv):
        return (conv.dst_channels if one.solves_for == "dst" else conv.src_channels,)
    return canonical_shape(conv, tensor)


def operands_of(one: Problem, bits: np.random.PCG64, subnormal: bool = True) -> list[Array]:
    """Return such numbers as operands that lie as the problem says. If none is subnormal, kernels add bf16 pairs."""
    found = []
    for tensor, layout in zip(one.operands, one.layouts, strict=False):
        numbers = values(shape_of(one, tensor), one.operand_format, bits)
        found.append(lying(numbers if subnormal else normal(numbers), layout))
    return found


def normal(numbers: Array) -> Array:
    """Return numbers with 1/16 for each subnormal one, and for 0."""
    return np.where(np.abs(numbers.astype(np.float32)) < 1 / 16, numbers.dtype.type(1 / 16), numbers)

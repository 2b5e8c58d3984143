"""Problems whose results are hashed, as words, and their operands: bits that depend on the words only."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np

from classes import BIAS, CLASSES, NAMES, TYPES, Class, Hands, draw, line_of
from convgrad.formats import FORMATS, Format
from convgrad.notation import read, write
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import CONV_WEIGHTS, TRANSPOSE_WEIGHTS
from convgrad.spec.problem import Problem, canonical_shape
from engine_helpers import Array, empty
from net import problems_of

WIDE = "wide depthwise"  # layers whose kernels are strips, as a rule, where channels are neighbours
LAYERS = {**CLASSES, BIAS: CLASSES["dense"], WIDE: Class((16, 17, 31, 40, 67), (1,), (1,), (2,), kernel=(2, 3, 3, 5))}
TURN = (*NAMES, WIDE, WIDE)
WAYS = {"to": False, "onto": True}  # whether a result is added to what is there
SIZES = ((0, 200_000), (100_000, 1_000_000), (3_000_000, 6_000_000))  # multiply-adds: the last for several threads
MOST_WEIGHTS = 30_000
SPECIAL = 8  # one problem in so many has an infinity in its first operand, a NaN in its second


def drawn(number: int) -> Iterator[str]:
    """Yield problems of all classes in turn, ``LINE to TYPE`` or ``LINE onto TYPE``.

    Each layer comes with two batches, which share a kernel as a rule: under an emulator compiling is what takes time.
    """
    rng = np.random.default_rng(81)
    hands = Hands(rng)
    for at in range(number):
        if at % 2 == 0:
            name = TURN[at // 2 % len(TURN)]
            conv, (way, other) = _layer(name, hands, rng), list(WAYS)[:: 1 - 2 * hands.deal("way", range(2))]
            operand, data = TYPES[hands.deal("operand", range(3))], hands.deal(f"data of {name}", range(2))
            output = (operand, "f32", *TYPES)[hands.deal("output", range(5))]
            transposed, weights = hands.deal("transposed", (0, 0, 1)) == 1, hands.deal("weights", (0, 0, 1))
        else:
            conv, way = replace(conv, batch=conv.batch + 1 + conv.batch // 4), other
        line = read(line_of(conv, operand, ("NXC", "NCX")[data], transposed))
        weights_format = (TRANSPOSE_WEIGHTS if transposed else CONV_WEIGHTS)[data ^ weights]
        line = replace(line, direction="BWD_WB" if name == BIAS else "BWD_W", weights_format=weights_format)
        yield f"{write(line)} {way} {output}"


def _layer(name: str, hands: Hands, rng: np.random.Generator) -> Conv:
    row = LAYERS[name]
    row = replace(row, axes=tuple(axes for axes in row.axes if axes <= 3))  # that a line can say
    least, most = SIZES[hands.deal(f"size of {name}", range(len(SIZES)))]
    return next(conv for conv in draw(row, rng, most, least) if prod(conv.weights_shape) <= MOST_WEIGHTS)


def problems(words: str) -> list[Problem]:
    """Return the problem of some words; two, where the line runs two operators."""
    line, way, output = words.rsplit(None, 2)
    return [replace(one, output_format=FORMATS[output], accumulate=WAYS[way]) for one in problems_of(line)]


def operands_and_out(one: Problem, words: str) -> tuple[list[Array], Array]:
    """Return canonical operands that lie as the problem says, and where its result goes: NaN, or an old value."""
    seed = zlib.crc32(words.encode())
    bits, operands = np.random.PCG64(seed), []
    for at, (tensor, layout) in enumerate(zip(one.operands, one.layouts, strict=False)):
        shape = canonical_shape(one.geometry, tensor)
        made = values(shape, one.operand_format, bits, None if seed % SPECIAL else at)
        operands.append(lying(made, layout))
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
        at = int(raw[0] % raw.size)
        exponents[at], fractions[at] = 2 * kind.max_exponent + 1, fraction
    width = kind.dtype.itemsize
    words = signs << 8 * width - 1 | exponents << fraction_bits | fractions
    return words.astype(f"u{width}").view(kind.dtype).reshape(shape)


def lying(array: Array, layout: str) -> Array:
    """Return canonical data whose channels are neighbours, or as it is."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1) if layout == "NXC" else array

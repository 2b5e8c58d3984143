"""Ranges of loops that are summed twice or not at all, also in some channels; padded input of transposed layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.verify import Verdict, check
from tests.support.places import DOCS
from tests.support.tiers import tiers
from tests.verify.plants import ROLES, Array, Plant, plant

PLANTS = {role: plant(role, 200) for role in ROLES}
MANY = plant("weights", 2_000)  # six images
KINDS = ("normal", "integers")


def of_kind(p: Plant, kind: str) -> Plant:
    return p if kind == "normal" else replace(p, **{name: np.rint(3 * getattr(p, name)) for name in "xyw"})


def times(array: Array, axis: int, some: slice, factor: float = 2) -> Array:
    other = array.copy()
    other[(*(slice(None),) * axis, some)] *= factor
    return other


def named(verdict: Verdict, name: str, *details: str) -> bool:
    return verdict.defects == (name,) and all(one in verdict.found[0].detail for one in details)


@tiers("tile, axis, kind", [2, 3, 4, 5, 6, 7, 8], [2, 3], KINDS, every=9)
def test_a_last_tile_that_overlaps_the_one_before(tile: int, axis: int, kind: str) -> None:
    """Of rows or columns of a weight gradient, which has ten of each."""
    p = of_kind(PLANTS["weights"], kind)
    first, last = 10 - tile, 10 - 10 % tile
    sums = replace(p, y=times(p.y, axis, slice(first, last))).sums()
    if first == last:
        assert p.call(sums).ok
        return
    word = {2: "row", 3: "column"}[axis]
    there = f"{word} {first} of 10" if last - first == 1 else f"{word}s {first}..{last - 1} of 10"
    assert named(p.call(sums), "positions counted twice", there, f"the last tile of {tile} begins at {first}")


def test_the_tile_of_the_report() -> None:
    """Tiles of 4 over 14 positions: positions 10 and 11 are counted twice."""
    src, diff_dst = np.random.default_rng(0).standard_normal((2, 2, 14, 4)).astype(np.float32)
    call = {"weights_shape": [1, 4, 4]}
    sums = np.einsum("npi,npo->io", src.astype(float), times(diff_dst, 1, slice(10, 12)).astype(float))
    verdict = check("ConvolutionBackwardWeights", sums[None].astype(np.float32), src, diff_dst, **call)
    assert named(verdict, "positions counted twice", "positions 10..11 of 14: the last tile of 4 begins at 10")
    bias = times(diff_dst, 1, slice(10, 12)).astype(float).sum((0, 1)).astype(np.float32)
    diff_dst = np.repeat(diff_dst, 4, 2)
    verdict = check("BiasAddBackward", np.repeat(bias, 4), diff_dst)
    assert named(verdict, "positions counted twice", "positions 10..11 of 14")


@pytest.mark.parametrize("kind", KINDS)
def test_other_loops_that_overlap(kind: str) -> None:
    p = of_kind(PLANTS["weights"], kind)
    flat = np.ones(100, np.float32)
    flat[92:96] = 2  # tiles of 8 over the positions of an image
    verdict = p.call(replace(p, y=p.y * flat.reshape(10, 10)).sums())
    assert named(verdict, "positions counted twice", "positions 92..95 of 100 of each image: the last tile of 8")
    verdict = p.call(replace(p, y=times(p.y, 2, slice(4, None, 4))).sums())
    assert named(verdict, "positions counted twice", "the first row of each tile of 4")
    many = of_kind(MANY, kind)
    verdict = many.call(replace(many, y=times(many.y, 0, slice(2, 4))).sums())
    assert named(verdict, "images counted twice", "images 2..3 of 6: the last tile of 4 begins at 2")
    for role, name in (("dst", "x"), ("src", "y")):
        p = of_kind(PLANTS[role], kind)
        array = getattr(p, name).copy()
        array[:, 17:24] *= 2  # tiles of 8 over 25 channels of a group
        array[:, 42:49] *= 2
        verdict = p.call(replace(p, **{name: array}).sums())
        assert named(verdict, "channels counted twice", "channels 17..23 of 25: the last tile of 8 begins at 17")


@pytest.mark.parametrize("role", ["dst", "src"])
def test_results_that_are_added_twice(role: str) -> None:
    p = PLANTS[role]
    sums = p.sums()
    extent = sums.shape[3]
    first, last = extent - 5, extent - extent % 5
    got = times(sums, 3, slice(first, last))
    assert named(p.call(got), "positions counted twice", f"of {extent}: the last tile of 5 begins at {first}")
    old = np.random.default_rng(8).standard_normal(sums.shape).astype(np.float32)
    assert named(replace(p, extra={"old": old}).call(got + old), "positions counted twice", "in the result")


# Where an operand of a weight gradient is read as 0, the name, and words of its detail
LEFT_OUT: dict[str, tuple[str, Any, str, str]] = {
    "last image, a group": ("y", np.s_[-1, 4:], "last image missing in some channels", "in group 1 of 2"),
    "last image, tail": ("y", np.s_[-1, 5:], "last image missing in some channels", "in output channels 5..7"),
    "last image, inputs": ("x", np.s_[-1, :3], "last image missing in some channels", "input channels 0..2"),
    "first image, one": ("y", np.s_[0, 6], "first image missing in some channels", "in output channel 6"),
    "an image, a range": ("y", np.s_[3, 2:4], "image missing in some channels", "image 3 of 6 not summed"),
    "an image, some": ("y", np.s_[3, [1, 4, 6]], "image missing in some channels", "channels 1, 4, 6"),
    "images, a range": ("y", np.s_[1:4, 1:3], "images missing in some channels", "images 1..3 of 6 not summed"),
    "an image": ("y", np.s_[3], "image missing", "image 3 of 6 not summed"),
    "tail images": ("y", np.s_[4:, 2:5], "tail images missing in some channels", "in output channels 2..4"),
    "last row": ("y", np.s_[:, 4:, -1], "last row missing in some channels", "in group 1 of 2"),
    "rows": ("y", np.s_[:, 4:, 3:5], "rows missing in some channels", "rows 3..4 of 18 not summed"),
}


@tiers("case, kind", list(LEFT_OUT), KINDS, every=11)
def test_terms_left_out(case: str, kind: str) -> None:
    p = of_kind(MANY, kind)
    operand, index, name, detail = LEFT_OUT[case]
    array = getattr(p, operand).copy()
    array[index] = 0
    verdict = p.call(replace(p, **{operand: array}).sums())
    assert verdict.outcome == "wrong"
    assert named(verdict, name, detail), str(verdict)


@pytest.mark.parametrize("role", ["dst", "src"])
def test_a_channel_that_some_channels_do_not_sum(role: str) -> None:
    p = PLANTS[role]
    w = p.w.copy()
    w[(slice(1, 3), 7) if role == "dst" else (7, slice(1, 3))] = 0
    assert named(p.call(replace(p, w=w).sums()), "channel missing in some channels", "channel 7 of 25")


# -- padded input ------------------------------------------------------------------------------------------------------


def transposed(x: Array, w: Array, strides: tuple[int, ...], dilations: tuple[int, ...]) -> Array:
    """A transposed layer without cropping, in float64; x is NCX and w IOX."""
    extents = [
        s * (n - 1) + d * (k - 1) + 1 for s, n, d, k in zip(strides, x.shape[2:], dilations, w.shape[2:], strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[1], *extents))
    for tap in np.ndindex(*w.shape[2:]):
        at = tuple(
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilations, strides, x.shape[2:], strict=True)
        )
        out[(..., *at)] += np.einsum("ni...,io->no...", x.astype(float), w[(..., *tap)].astype(float))
    return out


LAYERS = {
    "stride 2": ((2,), (4,), (1,), (1,)),
    "no stride": ((1,), (3,), (1,), (1,)),
    "dilation": ((2,), (3,), (2,), (1,)),
    "two axes": ((2, 1), (4, 3), (1, 2), (1, 2)),
    "stride 3": ((3,), (6,), (1,), (2,)),
}
# How the input is padded (by its pads, or by 3), and whether the output is cropped: not, by the pads, by all
PADDED: dict[str, tuple[str, bool, str, str]] = {
    "zeros, not cropped": ("constant", False, "not", "with zeros, instead of cropping the output"),
    "zeros, cropped": ("constant", False, "pads", "with zeros, and the output is cropped too"),
    "edge values": ("edge", False, "all", "with edge values"),
    "more edge values": ("edge", True, "all", "with edge values"),
    "mirrored": ("reflect", False, "all", "with mirrored values"),
    "the other end": ("wrap", False, "all", "with values of the other end"),
}


@tiers("layer, padded, kind", list(LAYERS), list(PADDED), KINDS, every=7)
def test_a_padded_input_of_a_transposed_layer(layer: str, padded: str, kind: str) -> None:
    strides, kernel, dilations, pads = LAYERS[layer]
    mode, by_more, cropped, detail = PADDED[padded]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, *(9,) * len(pads)), (3, 4, *kernel)))
    if kind == "integers":
        x, w = np.rint(3 * x), np.rint(3 * w)
    call: dict[str, Any] = {
        "strides": strides, "dilations": dilations, "pads_begin": pads, "pads_end": pads, "data_format": "NCX",
        "weights_format": "IOX",
    }  # fmt: skip
    right = convgrad.run("ConvTranspose", x, w, **call)
    widths = [(3, 3) if by_more else (p, p) for p in pads]
    wide = transposed(np.pad(x, [(0, 0), (0, 0), *widths], mode=mode), w, strides, dilations)  # type: ignore[call-overload]
    crops: dict[str, Callable[[int, int, int], int]] = {
        "not": lambda pad, width, stride: 0,
        "pads": lambda pad, width, stride: pad,
        "all": lambda pad, width, stride: pad + width * stride,
    }
    begins = [crops[cropped](p, width, s) for p, (width, _), s in zip(pads, widths, strides, strict=True)]
    got = wide[(..., *(slice(b, b + n) for b, n in zip(begins, right.shape[2:], strict=True)))].astype(np.float32)
    verdict = check("ConvTranspose", got, x, w, **call)
    if layer == "no stride" and padded == "zeros, cropped":  # which is the same
        assert named(verdict, "padding ignored", "also fits: input padded")
    else:
        assert named(verdict, "input padded", detail), str(verdict)


def test_a_padded_input_in_a_weight_gradient() -> None:
    rng = np.random.default_rng(0)
    x, diff = (rng.standard_normal(s).astype(np.float32) for s in ((2, 9, 3), (2, 18, 4)))
    call: dict[str, Any] = {"strides": 2, "pads_begin": 1, "pads_end": 1, "weights_shape": [4, 4, 3]}
    wide = np.pad(x, ((0, 0), (1, 1), (0, 0)), mode="edge")
    got = convgrad.run(
        "ConvTransposeBackwardWeights", wide, np.pad(diff, ((0, 0), (2, 2), (0, 0))),
        strides=[2], dilations=[1], pads_begin=[1], pads_end=[1], weights_shape=[4, 4, 3],
    )  # fmt: skip
    verdict = check("ConvTransposeBackwardWeights", got, x, diff, **call)
    assert named(verdict, "input padded", "with edge values")


# -- chance ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_chance_gives_no_name(role: str) -> None:
    """Other values in a range of channels, or at one index, on any data."""
    rng = np.random.default_rng(ROLES.index(role))
    for number in range(300):
        p = of_kind(PLANTS[role], KINDS[number % 2])
        got = p.sums()
        axis = int(rng.integers(got.ndim))
        first, last = sorted(rng.integers(0, got.shape[axis] + 1, 2))
        some = (*(slice(None),) * axis, slice(first, last))
        noise = rng.standard_normal(got[some].shape) * np.abs(got).mean()
        got[some] += np.rint(noise) if number % 2 else noise
        found = p.call(got).defects
        assert found in ((), ("single elements off",)) or found[0].startswith("one "), (number, found)


@pytest.mark.parametrize(
    "name",
    ["positions counted twice", "images counted twice", "channels counted twice", "image missing", "channel missing",
     "in some channels", "input padded"],
)  # fmt: skip
def test_the_page_has_the_name(name: str) -> None:
    assert name in (DOCS / "diagnosis.md").read_text(encoding="utf-8")

"""Geometries that broke other systems: wrong values, wrong shapes, refusals, crashes, size limits.

Each row runs the forward and both gradients in every type and both layouts, on integers whose sums are exact in f32 in
any order, so that the oracle, rounded once, is matched bit for bit; and on ones, whose results are counts of meetings.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
import pytest

import convgrad
from convgrad.formats import FORMATS
from convgrad.spec.geometry import Axis
from tests.support.hard_cases import (
    BOTH,
    BY_ID,
    ROLES,
    ROWS,
    THREADS,
    WEIGHTS_TOO,
    Array,
    Row,
    answer,
    assert_same,
    axes_of,
    canonical,
    contiguous,
    formats_of,
    integers,
    laid_out,
    plain,
    solve,
)
from tests.support.tiers import tiers

pytestmark = pytest.mark.timeout(60)  # a call that never returns is one of the cases


@tiers("row", ROWS, every=97)
def test_integers(row: Row) -> None:
    """``out`` is filled with NaN, or left away."""
    for fmt in row.types:
        tensors = integers(row, fmt)
        for role in ROLES:
            expected = answer(row, role, tensors)
            assert expected.shape == row.shapes[role]
            for layout, threads in WEIGHTS_TOO if role == "weights" else BOTH:
                given = contiguous(tensors, row, layout)
                out = None
                if threads:
                    shape = laid_out(expected, formats_of(row, layout)[role]).shape
                    out = np.full(shape, np.nan, FORMATS[fmt].dtype)
                got = solve(row, role, given, layout, threads=threads, out=out)
                assert_same(got, expected, fmt, role, layout, threads)


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
def test_weight_gradients_on_threads(row: Row) -> None:
    """The oracle's bits on integers; f64 is left out, whose threads are the BLAS library's."""
    for fmt in row.types:
        if fmt != "f64":
            tensors = integers(row, fmt, seed=1)
            expected = answer(row, "weights", tensors)
            for layout in ("NCX", "NXC"):
                given = contiguous(tensors, row, layout)
                for threads in THREADS:
                    got = solve(row, "weights", given, layout, threads=threads)
                    assert_same(got, expected, fmt, layout, threads)


def counts(axis: Axis, tensor: str) -> Array:
    """Count the meetings i = p*stride + k*dilation - pad_begin of each i (src), p (dst) or k (weights)."""
    taps = [(p, k) for p in range(axis.dst) for k in range(axis.kernel)]
    meetings = [(p * axis.stride + k * axis.dilation - axis.pad_begin, p, k) for p, k in taps]
    which, extent = {"src": (0, axis.src), "dst": (1, axis.dst), "weights": (2, axis.kernel)}[tensor]
    existing = [meeting[which] for meeting in meetings if 0 <= meeting[0] < axis.src]
    return np.bincount(np.array(existing, np.intp), minlength=extent)


@tiers("row", ROWS, every=69)
def test_ones(row: Row) -> None:
    tensors = {t: np.ones(shape, np.float32) for t, shape in row.shapes.items()}
    groups, flipped = row.attributes["groups"], {"src": "dst", "dst": "src", "weights": "weights"}
    terms = {"dst": row.src[1] // groups, "src": row.shapes["dst"][1] // groups, "weights": row.src[0]}
    for role in ROLES:
        per_axis = [counts(axis, flipped[role] if row.transposed else role) for axis in axes_of(row)]
        expected = np.broadcast_to(reduce(np.multiply.outer, per_axis) * terms[role], row.shapes[role])
        for layout in ("NCX", "NXC"):
            got = solve(row, role, contiguous(tensors, row, layout), layout)
            assert np.array_equal(got, expected), (role, layout)


# -- values the reports state ------------------------------------------------------------------------------------------


def grid(text: str) -> Array:
    return np.array([[float(v) for v in line.split()] for line in text.split("/")], np.float32)[None, None]


class Stated(NamedTuple):
    """A result known beforehand; tensors that are not given are ones, and ``expected`` holds for every channel."""

    row: str
    role: str
    tensors: dict[str, Array]
    expected: Array
    fmt: str = "f32"


IMPULSE = grid("0 0 0 / 0 1 0 / 0 0 0")
COLUMNS = grid("1 5 9 13 / 2 6 10 14 / 3 7 11 15 / 4 8 12 16")
THREES = grid("3")
NINE = grid("1 2 3 / 4 5 6 / 7 8 9")
MIDDLE = {"src": IMPULSE, "weights": NINE.repeat(2, axis=1)}
SPREAD = grid("1 0 2 0 3 / 0 0 0 0 0 / 4 0 5 0 6 / 0 0 0 0 0 / 7 0 8 0 9")


def placed(extent: int, first: int) -> Array:
    """Return what an impulse in the middle of 3x3 becomes: the weights, from position ``first`` on, odd pad decided."""
    return np.pad(NINE, [(0, 0), (0, 0), *[(first, extent - first - 3)] * 2])


STATED = (
    *(Stated(f"pytorch#50042 depthwise {c}", "weights", {}, grid("4 6 6 / 6 9 9 / 6 9 9")) for c in (23, 24, 25)),
    Stated("pytorch#63314", "src", {"dst": grid("1.5 0 .7"), "weights": THREES}, grid("1.5 .7") * THREES),
    Stated("tensorflow#1991 upper", "dst", {"src": COLUMNS}, grid("1 9 / 3 11")),
    Stated("tensorflow#1991 lower", "dst", {"src": COLUMNS}, grid("1 9 / 3 11")),
    Stated("mxnet#11203", "dst", {"src": IMPULSE, "weights": NINE}, SPREAD),
    Stated("openvino#7321 upper", "dst", MIDDLE, placed(6, 2)),
    Stated("openvino#7321 lower", "dst", MIDDLE, placed(6, 1)),
    Stated("onnxruntime#11927", "dst", MIDDLE, placed(7, 2)),
    Stated("onnxruntime#11927 lower", "dst", MIDDLE, placed(7, 1)),
    Stated("pytorch#163347", "dst", {}, grid("4"), "bf16"),
    Stated("pytorch#163347", "weights", {}, grid("1 1 / 1 1"), "bf16"),
    Stated("pytorch#96225 batch 65535", "weights", {}, grid("65535")[0]),
    Stated("pytorch#96225 batch 65536", "weights", {}, grid("65536")[0]),
    Stated("pytorch#96225 batch 65537", "weights", {}, grid("65537")[0]),
    Stated("caffe#2682", "dst", {}, grid("32 32 / 32 32")),
)


@pytest.mark.parametrize("case", STATED, ids=lambda c: f"{c.row} {c.role}")
def test_stated_values(case: Stated) -> None:
    row, dtype = BY_ID[case.row], FORMATS[case.fmt].dtype
    tensors = {t: case.tensors.get(t, np.ones(shape)).astype(dtype) for t, shape in row.shapes.items()}
    for layout in ("NCX", "NXC"):
        got = solve(row, case.role, contiguous(tensors, row, layout), layout)
        assert_same(got, np.broadcast_to(case.expected, got.shape).astype(dtype), layout)


def test_burn_1891() -> None:
    """The first channel of the data gradient; its last row follows from the others."""
    row = BY_ID["burn#1891"]
    counted = np.arange(prod(row.weights), dtype=np.float32).reshape(row.weights)
    tensors = {"weights": counted, "dst": np.ones(row.shapes["dst"], np.float32)}
    expected = grid("4 8 4 5 / 8 16 8 10 / 4 8 4 5 / 7 14 7 8")
    assert_same(solve(row, "src", tensors)[:, :1], expected)


def test_opacus_245() -> None:
    """Kernels 3 and 4 both fit 6 to 2 by stride 2; the gradient of the shorter is the longer one's, cropped."""
    short, long = BY_ID["opacus#245"], BY_ID["opacus#245 kernel 4"]
    tensors = integers(short, "f32")
    assert_same(solve(short, "weights", tensors), solve(long, "weights", tensors)[..., :3, :3])


def test_rocm_libraries_5859() -> None:
    """300 ones of a batch: a bf16 accumulator stops at 256. In bf16 pieces, added in f32, rounded once each."""
    one = plain("", (300, 1, 1), (1, 1, 1), (1,))
    tensors = {t: np.ones(shape, FORMATS["bf16"].dtype) for t, shape in one.shapes.items()}
    assert solve(one, "weights", tensors).item() == 300
    old = np.full((1, 1, 1), 1000, np.float32)
    assert solve(one, "weights", tensors, dtype="f32", out=old, accumulate=True) is not None
    assert old.item() == 1300
    narrow = np.full((1, 1, 1), 0.5, FORMATS["bf16"].dtype)
    solve(one, "weights", tensors, out=narrow, accumulate=True)
    assert narrow.item() == 300  # of 300.5: bf16 has the even numbers here


@pytest.mark.every(4)
@pytest.mark.parametrize("row", [r for r in ROWS if not r.transposed and prod(r.src) < 5000], ids=lambda r: r.id)
def test_mxnet_15464(row: Row) -> None:
    """The bias gradient asked for alone."""
    diff_dst = integers(row, "f32")["dst"]
    expected = diff_dst.sum(axis=(0, *range(2, diff_dst.ndim)), dtype=np.float64).astype(np.float32) + 0
    for layout in ("NCX", "NXC"):
        assert_same(convgrad.bias_add_backward(laid_out(diff_dst, layout), data_format=layout), expected, layout)


# -- NaN and infinity --------------------------------------------------------------------------------------------------

SMALL_ROWS = [r for r in ROWS if 0 < prod(r.src) <= 2000 and prod(r.weights) <= 2000 and prod(r.extents) <= 2000]
POISON = (np.nan, np.inf, -np.inf)


@tiers("row", SMALL_ROWS, every=69)
def test_non_finite_values_reach_the_existing_taps(row: Row) -> None:
    rng = np.random.default_rng(len(row.id))
    for fmt in row.types:
        finite = integers(row, fmt, least=1)
        for role in ROLES:
            for poisoned in [t for t in ROLES if t != role]:
                tensors = {t: array.copy() for t, array in finite.items()}
                flat = tensors[poisoned].reshape(-1)
                flat[rng.choice(flat.size, min(3, flat.size), replace=False)] = POISON[: flat.size]
                expected = answer(row, role, tensors)
                reached = reach(row, role, poisoned, ~np.isfinite(tensors[poisoned].astype(np.float64)))
                assert np.array_equal(~np.isfinite(expected.astype(np.float64)), reached)
                for layout in ("NCX", "NXC"):
                    got = solve(row, role, contiguous(tensors, row, layout), layout)
                    assert_same(got, expected, fmt, role, poisoned, layout)


def reach(row: Row, role: str, poisoned: str, where: Array) -> Array:
    """Return which results have an existing tap on a marked element: where the marks' own sums are positive."""
    tensors = {t: np.ones(shape, np.float32) for t, shape in row.shapes.items()}
    return solve(row, role, tensors | {poisoned: where.astype(np.float32)}) > 0


@pytest.mark.every(10)
@pytest.mark.parametrize("value", POISON)
@pytest.mark.parametrize("role", ["dst", "src"])
@pytest.mark.parametrize("row", [r for r in ROWS if r.id.startswith("burn#5385")], ids=lambda r: r.id)
def test_burn_5385(row: Row, role: str, value: float) -> None:
    """A non-finite weight over padding adds nothing: tap (0, 0) misses the first row and column, or the last."""
    tensors = integers(row, "f32", least=1)
    tensors["weights"][..., 0, 0] = value
    got = solve(row, role, contiguous(tensors, row, "NXC"), "NXC")
    inner = (..., slice(1, None), slice(1, None)) if role == "dst" else (..., slice(-1), slice(-1))
    met = np.zeros(got.shape, bool)
    met[inner] = True
    assert np.isfinite(got[~met]).all()
    assert np.array_equal(got[met], np.full(np.count_nonzero(met), value, np.float32), equal_nan=True)


@tiers("channels, fmt", [1, 7, 15, 16, 17, 31, 32, 33, 47, 65], ["bf16", "f32", "f16"], every=11)
def test_one_dnn_5717(channels: int, fmt: str) -> None:
    """NaN in one row stays there, for every number of rows and every length of the reduction (also 2a743fd)."""
    for rows in range(1, 18):
        one = plain("", (1, channels, rows), (5, channels, 1), (rows,))
        finite = integers(one, fmt)
        for role, poisoned in (("dst", "src"), ("src", "dst")):
            poison = finite[poisoned].copy()
            poison[..., rows // 2] = np.nan
            expected = solve(one, role, finite)
            expected[..., rows // 2] = np.nan
            for layout in ("NCX", "NXC"):
                given = contiguous(finite | {poisoned: poison}, one, layout)
                assert_same(solve(one, role, given, layout), expected, role, rows, layout)


@pytest.mark.parametrize("channels", [128, 129, 256, 300])
def test_tensorflow_60315(channels: int) -> None:
    """An infinite input among many channels gives infinities, and NaN nowhere."""
    one = plain("", (1, channels, 6, 6), (3, channels, 3, 3), (6, 6), p=1)
    tensors = integers(one, "f32", least=1)
    tensors["src"][0, channels // 2, 2, 3] = np.inf
    got = solve(one, "dst", tensors)
    assert np.isinf(got).sum() == 3 * 9
    assert not np.isnan(got).any()
    assert_same(got, answer(one, "dst", tensors))


# -- strides of memory, repetition -------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["split", "expanded", "reversed", "every second"])
def test_flash_linear_attention_871_1138(view: str) -> None:
    """Depthwise causal, diff_dst a view: a third of a projection, expanded from one row, reversed, every second."""
    row = BY_ID["flash-linear-attention#871"]
    tensors = integers(row, "f32")
    batch, channels, extent = row.shapes["dst"]
    wide = np.random.default_rng(5).integers(-3, 4, (batch, 2 * extent, 3 * channels)).astype(np.float32)
    views = {
        "split": wide[:, :extent, channels : 2 * channels],
        "expanded": np.broadcast_to(wide[:, :1, :channels], (batch, extent, channels)),
        "reversed": wide[:, extent - 1 :: -1, channels - 1 :: -1],
        "every second": wide[:, ::2, 1 : 2 * channels : 2],
    }
    diff_dst = canonical(views[view], "NXC")
    for role in ("src", "weights"):
        expected = answer(row, role, tensors | {"dst": diff_dst.copy()})
        for layout, threads in product(("NCX", "NXC"), THREADS if role == "weights" else (None,)):
            got = solve(row, role, tensors | {"dst": diff_dst}, layout, threads=threads)
            assert_same(got, expected, role, layout, threads)


@pytest.mark.parametrize("row", [r for r in ROWS if "torch-xpu-ops#4756" in r.id], ids=lambda r: r.id)
def test_torch_xpu_ops_4756(row: Row) -> None:
    """Strides of axes of extent 1 mean nothing."""
    tensors = integers(row, "f32")
    odd = {}
    for tensor, array in tensors.items():
        strides = [st if n > 1 else 4 * 1_000_003 for st, n in zip(array.strides, array.shape, strict=True)]
        odd[tensor] = np.lib.stride_tricks.as_strided(array, array.shape, strides)
    for role in ROLES:
        for layout in ("NCX", "NXC"):
            assert_same(solve(row, role, odd, layout), answer(row, role, tensors), role, layout)


REPEATED = (("rocm-libraries#8025", "bf16", 50), ("NNlib.jl#45 dilation", "f32", 300))


@pytest.mark.parametrize(("name", "fmt", "times"), REPEATED)
def test_repetition(name: str, fmt: str, times: int) -> None:
    """The same bits every time, into memory that holds NaN."""
    row = BY_ID[name]
    tensors = integers(row, fmt)
    for role in ROLES:
        expected = answer(row, role, tensors)
        out = np.empty(expected.shape, expected.dtype)
        for _ in range(times):
            out.fill(np.nan)
            assert_same(solve(row, role, tensors, out=out), expected, role)


@pytest.mark.parametrize("name", ["MIOpen#566 s3", "MIOpen#566 s5 d4", "burn#4806 remainders", "iree#22405 s2"])
def test_untouched_positions_are_plus_zero(name: str) -> None:
    row = BY_ID[name]
    tensors = {t: -array for t, array in integers(row, "f32", least=1).items()}
    out = np.full(row.src, np.nan, np.float32)
    solve(row, "src", tensors, out=out)
    touched = reach(row, "src", "dst", np.ones(row.shapes["dst"], bool))
    assert not touched.all()
    assert (out[touched] != 0).all()
    assert_same(out[~touched], np.zeros(np.count_nonzero(~touched), np.float32))


@pytest.mark.parametrize("name", ["NNlib.jl#763", "NNlib.jl#763 transposed", "empty extents"])
def test_empty_sums_are_plus_zero(name: str) -> None:
    row = BY_ID[name]
    tensors = integers(row, "f32")
    out = np.full(row.weights, np.nan, np.float32)
    assert_same(solve(row, "weights", tensors, out=out), np.zeros(row.weights, np.float32))
    assert convgrad.bias_add_backward(tensors["dst"], data_format="NCX").tolist() == [0] * row.shapes["dst"][1]

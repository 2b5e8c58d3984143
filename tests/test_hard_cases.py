"""Geometries that broke other systems: wrong values, wrong shapes, refusals, crashes, size limits.

Each row runs the forward and both gradients in every type and both layouts, on integers whose sums are exact in f32 in
any order, so that the oracle, rounded once, is matched bit for bit; and on ones, whose results are counts of meetings.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError, InvalidAttributeError, InvalidShapeError
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.spec import oracle
from convgrad.spec.geometry import Axis

pytestmark = pytest.mark.timeout(60)  # a call that never returns is one of the cases

Array = np.ndarray
Shape = tuple[int, ...]
ROLES = ("dst", "src", "weights")  # what a call solves for
OPERATORS = {
    False: ("Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights"),
    True: ("ConvTranspose", "ConvTransposeBackwardData", "ConvTransposeBackwardWeights"),
}
FAR = 2**55
SHORT_NAMES = {
    "s": "strides",
    "d": "dilations",
    "pb": "pads_begin",
    "pe": "pads_end",
    "op": "output_padding",
    "auto": "auto_pad",
    "g": "groups",
}


class Row(NamedTuple):
    """A geometry, canonical: src (N, C, I...), weights (O, C/g, K...) or transposed (C, O/g, K...), extents of dst."""

    id: str
    src: Shape
    weights: Shape
    extents: Shape
    attributes: dict[str, Any]
    types: tuple[str, ...]
    transposed: bool

    @property
    def shapes(self) -> dict[str, Shape]:
        channels = self.weights[1] * self.attributes["groups"] if self.transposed else self.weights[0]
        return {"src": self.src, "weights": self.weights, "dst": (self.src[0], channels, *self.extents)}


def plain(
    id_: str,
    src: Shape,
    weights: Shape,
    extents: Shape,
    *,
    types: str = "f32 bf16 f16 f64",
    up: bool = False,
    **short: Any,
) -> Row:
    """Write a row with short attribute names; one int stands for all axes, p for both pads."""
    axes = len(extents)
    if "p" in short:
        short["pb"] = short["pe"] = short.pop("p")
    attributes: dict[str, Any] = {"strides": [1] * axes, "dilations": [1] * axes, "groups": 1}
    for name, value in short.items():
        attributes[SHORT_NAMES[name]] = [value] * axes if isinstance(value, int) and name != "g" else value
    return Row(id_, src, weights, extents, attributes, tuple(types.split()), up)


def up(id_: str, src: Shape, weights: Shape, extents: Shape, **short: Any) -> Row:
    return plain(id_, src, weights, extents, up=True, **short)


# -- running a row -----------------------------------------------------------------------------------------------------


def formats_of(row: Row, layout: str) -> dict[str, str]:
    weights = {"NCX": ("OIX", "IOX"), "NXC": ("XIO", "XOI")}[layout][row.transposed]
    return {"src": layout, "dst": layout, "weights": weights}


def laid_out(array: Array, layout: str) -> Array:
    if layout == "NXC":
        return np.moveaxis(array, 1, -1)
    return np.moveaxis(array, (0, 1), (-1, -2)) if layout in ("XIO", "XOI") else array


def canonical(array: Array, layout: str) -> Array:
    if layout == "NXC":
        return np.moveaxis(array, -1, 1)
    return np.moveaxis(array, (-1, -2), (0, 1)) if layout in ("XIO", "XOI") else array


def call(row: Row, role: str, tensors: dict[str, Array], layout: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Return operator, inputs and attributes of the call that finds ``role`` from the other two tensors."""
    formats = formats_of(row, layout)
    inputs: list[Any] = [laid_out(tensors[t], formats[t]) for t in ("src", "dst", "weights") if t != role]
    if role == "weights" or (role == "src" and not row.transposed):
        inputs.append(laid_out(np.broadcast_to(0, row.shapes[role]), formats[role]).shape)
    attributes = row.attributes | {"data_format": layout, "weights_format": formats["weights"]}
    return OPERATORS[row.transposed][ROLES.index(role)], inputs, attributes


def solve(row: Row, role: str, tensors: dict[str, Array], layout: str = "NCX", **options: Any) -> Array:
    operator, inputs, attributes = call(row, role, tensors, layout)
    return canonical(convgrad.run(operator, *inputs, **attributes, **options), formats_of(row, layout)[role])


def answer(row: Row, role: str, tensors: dict[str, Array]) -> Array:
    operator, inputs, attributes = call(row, role, tensors, "NCX")
    prepared = prepare(operator, tuple(inputs), attributes)
    return oracle.evaluate(prepared.problem, prepared.operands).rounded(prepared.problem)


def axes_of(row: Row) -> tuple[Axis, ...]:
    """Return the axes of the underlying convolution."""
    zeros = {tensor: np.broadcast_to(np.float32(0), shape) for tensor, shape in row.shapes.items()}
    operator, inputs, attributes = call(row, "weights", zeros, "NCX")
    return prepare(operator, tuple(inputs), attributes).problem.geometry.axes


def contiguous(tensors: dict[str, Array], row: Row, layout: str) -> dict[str, Array]:
    """Return the same canonical tensors in memory of ``layout``."""
    formats = formats_of(row, layout)
    return {t: canonical(np.ascontiguousarray(laid_out(a, formats[t])), formats[t]) for t, a in tensors.items()}


def integers(row: Row, fmt: str, seed: int = 0, least: int = -3) -> dict[str, Array]:
    rng = np.random.default_rng([seed, *row.src])
    return {t: rng.integers(least, 4, shape).astype(FORMATS[fmt].dtype) for t, shape in row.shapes.items()}


def assert_same(got: Array, expected: Array, *what: object) -> None:
    """Assert equal shape, type and bytes, the sign of zeros included."""
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype), what
    differ = np.argwhere((got != expected) | (np.signbit(got) != np.signbit(expected)))
    assert got.tobytes() == expected.tobytes(), (*what, len(differ), "differ, first at", differ[:1].tolist())


# -- the table ---------------------------------------------------------------------------------------------------------

GRAD_EXTENTS = {1: ((9,), (5,)), 2: ((9, 7), (5, 4)), 3: ((9, 7, 5), (5, 4, 3))}


def pytorch_68868(d: int, h: int, w: int) -> Row:
    extents = (d // 4 + 1, h // 4 + 1, w + 1)
    return plain(f"pytorch#68868 {d}x{h}x{w}", (2, 18, d, h, w), (12, 6, 2, 2, 2), extents, s=[4, 4, 1], p=1, g=3)


def pytorch_51430(axes: int, g: int) -> Row:
    large, small = GRAD_EXTENTS[axes]
    return plain(f"pytorch#51430 {axes}-D g{g}", (2, 2 * g, *large), (3 * g, 2, *[3] * axes), small, s=2, p=1, g=g)


WRONG_VALUES = (
    *(plain(f"pytorch#50042 depthwise {c}", (1, c, 6, 6), (c, 1, 3, 3), (3, 3), s=2, p=1, g=c) for c in (23, 24, 25)),
    plain("pytorch#25101", (1, 9, 32, 32), (3, 9, 5, 5), (10, 10), s=3, p=1),
    *(pytorch_68868(*i) for i in ((3, 3, 3), (4, 5, 1), (5, 6, 3), (6, 7, 4), (7, 8, 5), (8, 9, 2), (11, 12, 2))),
    plain("pytorch#68868 720", (1, 720, 4, 5, 2), (720, 240, 2, 2, 2), (2, 2, 3), s=[4, 4, 1], p=1, g=3, types="f32"),
    plain("oneDNN#6035 32x32", (32, 4, 32, 32), (8, 4, 1, 1), (16, 16), s=2),
    plain("oneDNN#6035 64x64", (32, 4, 64, 64), (8, 4, 1, 1), (32, 32), s=2, types="f32"),
    plain("oneDNN#6035 stride 1", (4, 4, 32, 32), (8, 4, 1, 1), (32, 32)),
    *(plain(f"oneDNN#6035 {c} channels", (2, c, 9, 8), (8, c, 1, 1), (5, 4), s=2) for c in range(1, 18)),
    plain("pytorch#18463", (2, 4, 6, 6), (16, 2, 3, 3), (4, 4), g=2),
    plain("tensorflow#1991 upper", (1, 1, 4, 4), (1, 1, 1, 1), (2, 2), s=2, auto="same_upper"),
    plain("tensorflow#1991 lower", (1, 1, 4, 4), (1, 1, 1, 1), (2, 2), s=2, auto="same_lower"),
    *(pytorch_51430(axes, g) for axes in GRAD_EXTENTS for g in (2, 3, 4)),
    plain("mlx#2184 1-D", (3, 4, 5), (6, 2, 2), (2,), s=2, g=2),
    plain("mlx#2184 2-D", (3, 4, 5, 5), (6, 2, 2, 2), (2, 4), s=[2, 1], g=2),
    plain("burn#1891", (1, 4, 4, 4), (4, 1, 3, 3), (2, 2), s=2, p=1, g=4),
    up("candle#2337 s2 d1", (2, 3, 5, 4), (3, 2, 3, 2), (11, 8), s=2),
    up("candle#2337 s1 d2", (2, 3, 5, 4), (3, 2, 3, 2), (9, 6), d=2),
    up("candle#2337 s2 d3", (2, 3, 5, 4), (3, 2, 3, 2), (13, 8), s=2, d=3, p=1),
    plain("burn#4806 remainders", (2, 3, 10, 11), (4, 3, 3, 3), (3, 3), s=[3, 4]),
    plain("flash-linear-attention#871", (2, 6, 9), (6, 1, 4), (9,), pb=3, g=6),
    plain("flash-linear-attention#1156 512x768", (1, 768, 512), (768, 1, 4), (512,), pb=3, g=768, types="bf16"),
    plain("flash-linear-attention#1156 512x512", (1, 512, 512), (512, 1, 4), (512,), pb=3, g=512, types="bf16"),
    plain("flash-linear-attention#1156 511x768", (1, 768, 511), (768, 1, 4), (511,), pb=3, g=768, types="bf16"),
    plain("flash-linear-attention#1156 513x640", (1, 640, 513), (640, 1, 4), (513,), pb=3, g=640, types="bf16"),
    plain("MIOpen#77", (2, 2, 50, 55), (1, 2, 3, 3), (48, 27), s=[1, 2]),
    plain("MIOpen#600, 1/8 of N and O", (2, 64, 32, 32), (32, 64, 3, 3), (30, 30), types="f32"),
    plain("MIOpen#437 1x1, 1/16 of the channels", (400, 64, 1, 1), (64, 64, 1, 1), (1, 1)),
    plain("MIOpen#437 7x7, 1/32 of the channels", (400, 8, 7, 7), (32, 8, 7, 7), (1, 1), types="f32 bf16"),
    plain("rocm-libraries#5859", (8, 16, 7, 7), (16, 16, 3, 3), (7, 7), p=1),
    plain("ROCm/pytorch#3319 upper", (1, 1, 10, 11, 12), (1, 1, 4, 4, 4), (10, 11, 12), d=3, auto="same_upper"),
    plain("ROCm/pytorch#3319 lower", (1, 1, 10, 11, 12), (1, 1, 4, 4, 4), (10, 11, 12), d=3, auto="same_lower"),
    plain("pytorch#163347", (1, 1, 2, 2), (1, 1, 2, 2), (1, 1)),
    plain("pytorch#169688 width 1", (2, 4, 5, 6, 3), (8, 4, 3, 3, 3), (3, 4, 1), s=[1, 1, 2]),
    plain("pytorch#188426 width 1", (1, 3, 4, 4, 2), (5, 3, 1, 1, 2), (4, 4, 1), s=[1, 1, 3]),
    *(plain(f"oneDNN#5717 reduction {c}", (2, c, 5), (7, c, 1), (5,)) for c in (31, 33, 47, 65)),
    up("mxnet#11203", (1, 1, 3, 3), (1, 1, 3, 3), (5, 5), s=2, d=2, p=2),
    plain("tensorflow#18454 d2", (1, 1, 7, 7), (1, 1, 3, 3), (3, 3), d=2, auto="valid"),
    plain("tensorflow#18454 d3", (1, 1, 7, 7), (1, 1, 3, 3), (1, 1), d=3, auto="valid"),
    *(plain(f"pytorch#96225 batch {n}", (n, 1, 1), (1, 1, 1), (1,)) for n in (65535, 65536, 65537)),
    up("pytorch#63314", (1, 1, 1, 2), (1, 1, 1, 1), (1, 3), s=2),
)
WRONG_SHAPES = (
    up("onnxruntime#2518", (1, 2, 50, 50), (2, 3, 3, 5), (97, 50), s=[2, 1], d=[3, 1], p=[4, 2]),
    up("onnxruntime#4086", (1, 2, 2, 2), (2, 3, 3, 3), (2, 2), auto="same_upper"),
    up("onnxruntime#11927", (1, 1, 3, 3), (1, 2, 3, 3), (7, 7), s=2, op=1, auto="same_upper"),
    up("onnxruntime#11927 lower", (1, 1, 3, 3), (1, 2, 3, 3), (7, 7), s=2, op=1, auto="same_lower"),
    up("openvino#7321 upper", (1, 1, 3, 3), (1, 2, 3, 3), (6, 6), s=2, auto="same_upper"),
    up("openvino#7321 lower", (1, 1, 3, 3), (1, 2, 3, 3), (6, 6), s=2, auto="same_lower"),
    up("openvino#32608 upper", (1, 2, 32, 32), (2, 3, 3, 3), (32, 32), auto="same_upper"),
    up("openvino#32608 lower", (1, 2, 32, 32), (2, 3, 4, 4), (32, 32), auto="same_lower"),
    up("openvino#34330 grouped", (1, 16, 9, 12), (16, 2, 3, 3), (11, 14), g=4),
    plain("openvino#34330 6x6 by pads", (1, 8, 6, 6), (16, 2, 3, 3), (9, 12), pb=[2, 4], pe=[3, 4], g=4),
    plain("openvino#34330 4x9 by pads", (1, 8, 4, 9), (16, 2, 3, 3), (9, 12), pb=[3, 2], pe=[4, 3], g=4),
    up("pytorch#195043", (2, 2, 4, 4), (2, 2, 4, 5), (22, 22), s=[3, 2], p=[1, 2], d=4, op=[2, 3], g=2),
    up("pytorch#5112 op above stride", (2, 2, 4), (2, 3, 2), (9,), d=3, op=2),
    plain("opacus#245", (2, 3, 6, 6), (4, 3, 3, 3), (2, 2), s=2),
    plain("opacus#245 kernel 4", (2, 3, 6, 6), (4, 3, 4, 4), (2, 2), s=2),
    plain("iree#22405 s2", (4, 16, 8, 8), (32, 4, 1, 1), (4, 4), s=2, g=4),
    plain("iree#22405 s1", (4, 16, 8, 8), (32, 4, 1, 1), (8, 8), g=4),
    plain("caffe#2682", (1, 2, 4, 4), (3, 2, 5, 5), (2, 2), p=1),
    plain("NNlib.jl#763", (0, 3, 8, 8), (5, 3, 3, 3), (6, 6)),
    up("NNlib.jl#763 transposed", (0, 3, 8, 8), (3, 5, 3, 3), (10, 10)),
    plain("empty extents", (2, 3, 0, 5), (5, 3, 3, 3), (0, 5), p=1),
    plain("empty src, two blocks of dst", (2, 3, 0, 30), (5, 3, 3, 3), (30, 30), p=[16, 1]),
    plain("MIOpen#566 s3", (2, 3, 9, 11), (4, 3, 1, 2), (3, 4), s=3),
    plain("MIOpen#566 s5 d4", (1, 2, 10, 12), (2, 2, 2, 2), (2, 2), s=5, d=4),
    plain("pytorch#147362 one position", (2, 3, 5, 5), (4, 3, 3, 3), (1, 1), s=FAR),
    plain("pytorch#147362 dilation", (2, 3, 5, 5), (4, 3, 1, 1), (5, 5), d=FAR),
    up("pytorch#147362 transposed", (2, 3, 1, 1), (3, 4, 3, 2), (3, 2), s=FAR),
    plain("pytorch#147362 many channels", (2, 600, 5, 1), (7, 600, 3, 1), (1, 1), s=FAR),
    plain("pytorch#147362 blocks on padding", (1, 600, 5), (7, 600, 3), (600,), s=2**50, pe=599 * 2**50),
    plain("pytorch#147362 all but one on pads", (2, 64, 5, 5), (64, 1, 5, 1), (5, 5), d=FAR, p=[2 * FAR, 0], g=64),
)
FURTHER = (
    plain("torch-xpu-ops#4756 spatial 1x1", (3, 5, 1, 1), (7, 5, 3, 3), (1, 1), p=1),
    plain("torch-xpu-ops#4756 kernel 1x1", (3, 5, 1, 6), (7, 5, 1, 1), (1, 6)),
    plain("rocm-libraries#8025", (3, 6, 4, 5, 6), (7, 6, 3, 3, 3), (4, 5, 6), p=1),
    *(
        plain(f"burn#5385 {c} to {o}", (1, c, 4, 4), (o, c, 3, 3), (4, 4), p=1)
        for c in range(1, 7)
        for o in range(15, 19)
    ),
    plain("modular#6461 kernel 3", (2, 4, 5, 9), (6, 4, 3, 3), (5, 9), p=1),
    plain("modular#6461 kernel 5", (2, 4, 5, 9), (6, 4, 5, 5), (5, 9), p=2),
    plain("NNlib.jl#45 dilation", (2, 3, 9, 8), (4, 3, 3, 2), (5, 4), d=[2, 4]),
    plain("burn#4445 wide", (1, 1, 3, 20000), (1, 1, 3, 3), (3, 20000), p=1, types="f32"),
    up("mlx#3327 input dilation 9", (6, 1, 8, 8), (1, 1, 1, 1), (64, 64), s=9),
    plain("benchdnn id2kd3pd2", (2, 1, 2, 1, 1), (1, 1, 3, 1, 1), (2, 1, 1), pb=[2, 0, 0]),
    plain("benchdnn ih7kh11sh2ph5", (2, 16, 7, 1), (16, 16, 11, 1), (1, 1), s=[2, 1], pb=[5, 0]),
    plain("benchdnn ih4oh3kh1sh2", (2, 16, 4, 8), (16, 16, 1, 1), (3, 8), s=[2, 1], pe=[1, 0]),
    plain("benchdnn ih28oh56kh1sh2ph0", (2, 16, 28, 28), (16, 16, 1, 1), (56, 56), s=2, pe=83, types="f32"),
    plain("pads beyond the kernel", (1, 2, 3), (2, 2, 2), (9,), pb=4, pe=3),
    plain("taps that see only padding", (2, 2, 2), (3, 2, 5), (1,), d=3, pb=4, pe=7),
)
ROWS = (*WRONG_VALUES, *WRONG_SHAPES, *FURTHER)
BY_ID = {r.id: r for r in ROWS}
BOTH = (("NCX", 1), ("NCX", 4), ("NXC", 2), ("NXC", None))  # layouts and threads
WEIGHTS_TOO = (*BOTH, ("NXC", 8))  # and the others in the long tier
THREADS = (1, 2, 3, 5, 8)
threads_too = pytest.mark.parametrize("threads", [None, *(pytest.param(n, marks=pytest.mark.long) for n in THREADS)])


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
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


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
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


@pytest.mark.parametrize("row", SMALL_ROWS, ids=lambda r: r.id)
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


@pytest.mark.parametrize("fmt", ["bf16", "f32", "f16"])
@pytest.mark.parametrize("channels", [1, 7, 15, 16, 17, 31, 32, 33, 47, 65])
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


# -- sizes beyond 2^31 -------------------------------------------------------------------------------------------------
# Through views on little memory, with strides so long that few positions are read. Left out, for they cannot be asked
# without the memory or the time: a data gradient of 2^31 elements (its result is real memory), mlx#3138 (its boundary
# is the 2^32 products of an unfolded input, at any stride), and the stride-1 originals of the rows below.

BIG = (
    plain("pytorch#43476", (1, 32, 512, 512, 256), (1, 32, 1, 1, 1), (4, 4, 4), s=[128, 128, 64]),
    plain("pytorch#84488", (1, 28, 514, 514, 256), (12, 28, 1, 1, 1), (8, 8, 6), s=[73, 73, 51]),
    plain("pytorch#152816", (1, 2, 32800, 32800), (2, 1, 3, 3), (8, 8), s=4100, p=1, g=2),
    plain("pytorch#80020", (50000, 8, 1, 3840), (16, 1, 1, 1), (1, 4), s=[1, 960], g=8),
    plain("pytorch#128947 4", (1, 256, 4, 1090, 1922), (64, 256, 3, 3, 3), (2, 6, 7), s=[1, 200, 300]),
    plain("pytorch#128947 5", (1, 256, 5, 1090, 1922), (64, 256, 3, 3, 3), (3, 6, 7), s=[1, 200, 300]),
    plain("2^32 in two axes", (2, 1, 2**16, 2**16), (3, 1, 2, 2), (8, 8), s=2**13, pb=1, d=5),
)


def overlapping(shape: Shape, fmt: str = "f32") -> Array:
    """Return x[i, j, ...] = base[i + j + ...]: an array of any size on the sum of its extents."""
    base = np.random.default_rng(1).integers(-3, 4, sum(shape)).astype(FORMATS[fmt].dtype)
    return np.lib.stride_tricks.as_strided(base, shape, base.strides * len(shape), writeable=False)


def windows(src: Array, row: Row) -> tuple[Row, Array]:
    """Return the row with the windows of src laid side by side, which a stride of the kernel's extent reads alike."""
    index, exists, axes = [], np.ones((1, 1), bool), axes_of(row)
    for axis in axes:
        i = np.add.outer(np.arange(axis.dst) * axis.stride - axis.pad_begin, np.arange(axis.kernel) * axis.dilation)
        index.append(np.where((i >= 0) & (i < axis.src), i, 0).ravel())
        exists = np.multiply.outer(exists, ((i >= 0) & (i < axis.src)).ravel())
    gathered = src[np.ix_(*map(np.arange, src.shape[:2]), *index)] * exists
    kernel, groups = list(row.weights[2:]), row.attributes["groups"]
    apart = {"strides": kernel, "dilations": [1] * len(kernel), "groups": groups}
    return row._replace(src=gathered.shape, attributes=apart), gathered


@threads_too
@pytest.mark.parametrize("row", BIG, ids=lambda r: r.id)
def test_big_sources(row: Row, threads: int | None) -> None:
    src = overlapping(row.src)
    small, gathered = windows(src, row)
    tensors = integers(small, "f32")
    for role in ("dst", "weights"):
        expected = answer(small, role, tensors | {"src": gathered})
        for layout in ("NCX", "NXC"):
            got = solve(row, role, tensors | {"src": src}, layout, threads=threads)
            assert_same(got, expected, role, layout)


@threads_too
@pytest.mark.parametrize("extent", [2**31 + 64, 2**32 + 64])
def test_burn_4445_wider_than_an_index(extent: int, threads: int | None) -> None:
    one = plain("", (1, 1, 3, extent), (2, 1, 3, 3), (3, 17), s=[1, extent // 16 - 4], p=[1, 0])
    src = np.broadcast_to(np.array([1, 2, 4], np.float32)[:, None], one.src)
    small, gathered = windows(src, one)
    tensors = integers(small, "f32")
    for role in ("dst", "weights"):
        got = solve(one, role, tensors | {"src": src}, threads=threads)
        assert_same(got, answer(small, role, tensors | {"src": gathered}), role)


def test_diff_dst_wider_than_an_index() -> None:
    """Most of 2^31 destination positions see only padding; every source position meets all three taps."""
    one = plain("", (1, 1, 6), (1, 1, 3), (2**31 + 11,), pb=2**31 + 2, pe=5)
    diff_dst = np.broadcast_to(np.float32(2), one.shapes["dst"])
    weights = np.array([1, 10, 100], np.float32).reshape(one.weights)
    assert solve(one, "src", {"dst": diff_dst, "weights": weights}).ravel().tolist() == [222.0] * 6


@threads_too
def test_mlx_3327(threads: int | None) -> None:
    """2^19 + 2 images of 64x64 in f16, more than 2^31 elements, read with stride 9 (the transposed gradients)."""
    images = 2**19 + 2
    one = up("", (images, 1, 8, 8), (1, 1, 1, 1), (64, 64), s=9)
    diff_dst = overlapping(one.shapes["dst"], "f16")
    weights = np.full(one.weights, 2, np.float16)
    assert np.array_equal(solve(one, "src", {"dst": diff_dst, "weights": weights}), 2 * diff_dst[..., ::9, ::9])
    chosen = np.zeros((images, 1, 1, 1), np.float16)
    chosen[[5, 4096, 2**18 + 1, images - 1]] = 1
    expected = diff_dst[[5, 4096, 2**18 + 1, images - 1]][..., ::9, ::9].sum(dtype=np.float64)
    src = np.broadcast_to(chosen, one.src)
    assert solve(one, "weights", {"src": src, "dst": diff_dst}, dtype="f32", threads=threads).item() == expected


# -- what must be refused ----------------------------------------------------------------------------------------------


class Refused(NamedTuple):
    """A call by shapes in NCX and OIX or IOX, and the error it must raise."""

    id: str
    operator: str
    shapes: tuple[Shape, ...]
    attributes: dict[str, Any]
    error: type[ConvgradError]


FORWARD, DATA, BACK = OPERATORS[False]
FORWARD_UP, DATA_UP, BACK_UP = OPERATORS[True]
SHAPE, ATTRIBUTE = InvalidShapeError, InvalidAttributeError


def refused(id_: str, operator: str, shapes: tuple[Shape, ...], error: type[ConvgradError], **short: Any) -> Refused:
    attributes = plain("", shapes[0], shapes[1], shapes[0][2:], **short).attributes
    formats = {"data_format": "NCX", "weights_format": "IOX" if operator in OPERATORS[True] else "OIX"}
    return Refused(id_, operator, shapes, attributes | formats, error)


REFUSED = (
    refused("pytorch#147362 two positions", BACK, ((1, 1, 5), (1, 1, 2), (1, 1, 3)), SHAPE, s=FAR),
    refused("pytorch#147362 no position", FORWARD, ((1, 1, 2), (1, 1, 3)), SHAPE, s=FAR),
    refused("pytorch#147362 5 from two", DATA, ((1, 1, 2), (1, 1, 3), (1, 1, 5)), SHAPE, s=FAR),
    refused("pytorch#147362 not inferred", DATA, ((1, 1, 1), (1, 1, 3)), ATTRIBUTE, s=FAR),
    refused("pytorch#147362 result too large", FORWARD_UP, ((1, 1, 2, 2), (1, 1, 3, 3)), SHAPE, s=FAR),
    refused("pytorch#147362 extent too large", FORWARD_UP, ((1, 1, 5), (1, 1, 3)), SHAPE, s=2**61),
    refused("pytorch#147362 dilation", FORWARD, ((1, 1, 5), (1, 1, 2)), SHAPE, d=FAR),
    refused("pytorch#147362 stride 2^63", FORWARD, ((1, 1, 5), (1, 1, 3)), ATTRIBUTE, s=2**63),
    refused("pytorch#147362 pads 2^63", FORWARD, ((1, 1, 5), (1, 1, 3)), ATTRIBUTE, p=2**63),
    refused("pytorch#147362 pads 2^62", FORWARD, ((1, 1, 5), (1, 1, 3)), SHAPE, p=2**62),
    refused("openvino#34330 6x6", DATA, ((1, 16, 9, 12), (16, 2, 3, 3), (1, 8, 6, 6)), SHAPE, g=4),
    refused("openvino#34330 4x9", DATA, ((1, 16, 9, 12), (16, 2, 3, 3), (1, 8, 4, 9)), SHAPE, g=4),
    refused("openvino#34330 4x9 s2", DATA, ((1, 16, 9, 12), (16, 2, 3, 3), (1, 8, 4, 9)), SHAPE, g=4, s=2, p=1),
    refused("onnxruntime#11927 op 2", FORWARD_UP, ((1, 1, 3), (1, 1, 3)), ATTRIBUTE, s=2, op=2),
    refused("pytorch#195043 op 4", FORWARD_UP, ((1, 1, 3), (1, 1, 3)), ATTRIBUTE, s=3, d=4, op=4),
    refused("pytorch#195043 of no forward", DATA, ((1, 1, 4), (1, 1, 4), (1, 1, 23)), SHAPE, s=3, d=4, p=1),
    refused("pytorch#5112 op 2 of stride 2", DATA, ((1, 1, 4), (1, 1, 3)), ATTRIBUTE, s=2, d=3, op=2),
    refused("mlx#2184 ungrouped weights", BACK, ((3, 4, 5), (3, 6, 2), (6, 4, 2)), SHAPE, s=2, g=2),
    refused("burn#1891 ungrouped weights", BACK, ((1, 4, 4), (1, 4, 2), (4, 4, 3)), SHAPE, s=2, p=1, g=4),
    refused("opacus#245 kernel 5", BACK, ((2, 3, 6), (2, 4, 2), (4, 3, 5)), SHAPE, s=2),
    refused("caffe#2682 kernel above the padded input", FORWARD, ((1, 2, 4, 4), (3, 2, 7, 7)), SHAPE, p=1),
    refused("candle#2337 exchanged", BACK_UP, ((1, 1, 5), (1, 1, 11), (1, 1, 3)), SHAPE, d=2),
    refused("tensorflow#18454 without dilation", BACK, ((1, 1, 7), (1, 1, 5), (1, 1, 3)), SHAPE, d=2),
    refused("onnxruntime#2518 95 long", BACK_UP, ((1, 1, 50), (1, 1, 95), (1, 1, 3)), SHAPE, s=2, d=3, p=4),
    refused("onnxruntime#4086 op 1", DATA_UP, ((1, 1, 4), (1, 1, 3)), ATTRIBUTE, auto="same_upper", op=1),
    refused("openvino#32608 34 long", BACK_UP, ((1, 1, 32), (1, 1, 34), (1, 1, 3)), SHAPE, auto="same_upper"),
    refused("groups that divide nothing", FORWARD, ((1, 3, 5), (4, 1, 3)), SHAPE, g=2),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c.id)
def test_refused(case: Refused) -> None:
    with pytest.raises(case.error):
        convgrad.infer_shapes(case.operator, *case.shapes, **case.attributes)
    arrays = [np.broadcast_to(np.float32(0), shape) for shape in case.shapes[:2]]
    with pytest.raises(case.error):
        convgrad.run(case.operator, *arrays, *case.shapes[2:], **case.attributes)


def test_pytorch_147362_result_beyond_memory() -> None:
    """2^55 + 3 positions are a shape, but no memory."""
    attributes = {"strides": [FAR], "dilations": [1], "data_format": "NCX", "weights_format": "IOX"}
    assert convgrad.infer_shapes(FORWARD_UP, (1, 1, 2), (1, 1, 3), **attributes) == (1, 1, FAR + 3)
    with pytest.raises((ConvgradError, MemoryError)):
        convgrad.run(FORWARD_UP, np.ones((1, 1, 2), np.float32), np.ones((1, 1, 3), np.float32), **attributes)

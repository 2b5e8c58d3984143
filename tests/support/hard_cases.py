"""Geometries that broke other systems: the table, and how a row is run in any role, layout and type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import convgrad
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.spec import exact_result
from convgrad.spec.geometry import Axis

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
    return exact_result.evaluate(prepared.problem, prepared.operands).rounded(prepared.problem)


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

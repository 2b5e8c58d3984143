"""``max_error``: an argument of every function that sums over channels or positions, a context, and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.cli import main
from convgrad.errors import GraphError
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.functional.joint import Gradients
from convgrad.graph import Graph, LogicalTensor, Op, explain, write
from tests.support.classes import ALL_TYPES
from tests.support.engine_helpers import HOST, Array
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

runs = pytest.mark.skipif(not HOST, reason="no generated kernels run here")
SAME: dict[str, Any] = {"auto_pad": "same_upper"}
STRICT: dict[str, Any] = {"strides": [1, 1], "dilations": [1, 1], **SAME}
RNG = np.random.default_rng(1)
SRC, DST, WEIGHTS, BIAS = (
    RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 32, 32, 40), (2, 32, 32, 50), (3, 3, 40, 50), (50,))
)
SHAPE = WEIGHTS.shape
LAYER = (SRC, DST, WEIGHTS)
# Each name of each role, of the same arrays: by a function of an accuracy, if any.
CALLS: dict[str, dict[str, Callable[..., Any]]] = {
    "dst": {
        "convolution": partial(convgrad.convolution, SRC, WEIGHTS, **SAME),
        "run": partial(convgrad.run, "Convolution", SRC, WEIGHTS, **STRICT),
        "compile": lambda **given: convgrad.compile("Convolution", SRC, WEIGHTS, **STRICT, **given)(SRC, WEIGHTS),
        "conv_transpose_backward_data": partial(convgrad.conv_transpose_backward_data, SRC, WEIGHTS, **SAME),
    },
    "src": {
        "convolution_backward_data": partial(convgrad.convolution_backward_data, DST, WEIGHTS, **SAME),
        "convolution_backprop_data": partial(convgrad.convolution_backprop_data, DST, WEIGHTS, **SAME),
        "conv_transpose": partial(convgrad.conv_transpose, DST, WEIGHTS, **SAME),
        "convolution_backward": lambda **given: convgrad.convolution_backward(*LAYER, **SAME, **given).src,
        "vjp": lambda **given: convgrad.vjp("Convolution", SRC, WEIGHTS, **SAME, **given)[1](DST)[0],
    },
    "weights": {
        "convolution_backward_weights": partial(convgrad.convolution_backward_weights, SRC, DST, SHAPE, **SAME),
        "convolution_backprop_weights": partial(convgrad.convolution_backprop_weights, SRC, DST, SHAPE, **SAME),
        "convolution_backprop_filters": partial(convgrad.convolution_backprop_filters, SRC, DST, SHAPE, **SAME),
        "conv_transpose_backward_weights": partial(convgrad.conv_transpose_backward_weights, DST, SRC, SHAPE, **SAME),
        "run": partial(convgrad.run, "ConvolutionBackwardWeights", SRC, DST, SHAPE, **STRICT),
        "convolution_backward": lambda **given: convgrad.convolution_backward(*LAYER, **SAME, **given).weights,
        "vjp": lambda **given: convgrad.vjp("Convolution", SRC, WEIGHTS, **SAME, **given)[1](DST)[1],
    },
}


def expected(role: str, most: float) -> Array:
    made: Array = next(iter(CALLS[role].values()))(max_error=most)
    return made


@runs
@pytest.mark.parametrize(("role", "name"), [(role, name) for role, names in CALLS.items() for name in names])
def test_it_is_an_argument_and_a_context(role: str, name: str) -> None:
    """All names of a sum have its bits, by tiles too."""
    call = CALLS[role][name]
    direct, by_tiles = expected(role, 1), expected(role, 64)
    assert (direct != by_tiles).mean() > 0.5
    assert_same_bits(call(), direct, "the default")
    assert_same_bits(call(max_error=64), by_tiles, "an argument")
    with convgrad.max_error(64):
        assert_same_bits(call(), by_tiles, "a context")
        assert_same_bits(call(max_error=1), direct, "the call beats it")


def any_bias(fmt: str, stride: int) -> Array:
    """Return a bias of small integers whose elements are ``stride`` elements apart."""
    room = (np.arange(192) % 5 - 2).astype(FORMATS[fmt].dtype)
    return np.ndarray((64,), room.dtype, room, 64 * room.itemsize, (stride * room.itemsize,))


@runs
@tiers("fmt, stride", ALL_TYPES, (1, 2, -1, 0), every=13)
def test_biases_of_every_type_and_stride(fmt: str, stride: int) -> None:
    """Integers are exact by tiles too, so that each door has the bits of the direct sum."""
    rng = np.random.default_rng(3)
    shapes = ((2, 32, 32, 64), (3, 3, 64, 64), (2, 32, 32, 64))
    src, weights, old = (rng.integers(-2, 3, shape).astype(FORMATS[fmt].dtype) for shape in shapes)
    across, bias = weights.swapaxes(2, 3), any_bias(fmt, stride)
    operands, transposed = (src, weights, bias), (src, across, bias)
    assert prepare("Convolution", operands, STRICT).within(64).problem.algorithm == "4x4"
    doors: dict[str, Callable[..., Any]] = {
        "convolution": partial(convgrad.convolution, *operands, **SAME),
        "relu": partial(convgrad.convolution, *operands, **SAME, activation="relu"),
        "f32": partial(convgrad.convolution, *operands, **SAME, dtype="f32"),
        "run": partial(convgrad.run, "Convolution", *operands, **STRICT),
        "compile": lambda **given: convgrad.compile("Convolution", *operands, **STRICT, **given)(*operands),
        "vjp": lambda **given: convgrad.vjp("Convolution", *operands, **SAME, **given)[0],
        "conv_transpose": partial(convgrad.conv_transpose, *transposed, **SAME),
        "accumulate": lambda **given: convgrad.convolution(*operands, **SAME, out=old.copy(), accumulate=True, **given),
    }
    for name, call in doors.items():
        assert_same_bits(call(max_error=64), call(), name)


@runs
def test_pieces_are_direct() -> None:
    with convgrad.max_error(64):
        parts = convgrad.partials("ConvolutionBackwardWeights", SRC, DST, SHAPE, **SAME)
    assert_same_bits(np.asarray(convgrad.join([parts])), expected("weights", 1), "pieces")


@runs
def test_a_layer_s_gradients_are_added_to_old_ones() -> None:
    old = Gradients(np.ones_like(SRC), np.ones_like(WEIGHTS), np.ones_like(BIAS))
    outs = Gradients(*[each.copy() for each in old])
    convgrad.convolution_backward(SRC, DST, WEIGHTS, **SAME, out=outs, accumulate=True, max_error=64)
    assert_same_bits(outs.src, 1 + expected("src", 64), "src")
    assert_same_bits(outs.weights, 1 + expected("weights", 64), "weights")


@runs
@pytest.mark.parametrize(
    ("operator", "inputs", "norms", "kappa"),
    [
        ("ConvolutionBackwardWeights", (SRC, DST, SHAPE), "||src_c|| ||diff_dst_o||", "100.9"),
        ("Convolution", (SRC, WEIGHTS), "||src_t|| ||weights_o||", "86.82"),
        ("ConvolutionBackwardData", (DST, WEIGHTS), "||diff_dst_t|| ||weights_c||", "86.82"),
    ],
)
def test_what_is_said_of_it(operator: str, inputs: tuple[Any, ...], norms: str, kappa: str) -> None:
    """Results lie within the bounds; explain has variant, norms and kappa."""
    by_tiles, direct = (convgrad.run(operator, *inputs, max_error=most, **STRICT) for most in (64, 1))
    bounds = [convgrad.error_bound(operator, *inputs, max_error=most, **STRICT) for most in (1, 64)]
    assert (np.abs(by_tiles - direct) <= bounds[0] + bounds[1]).all()
    shapes = [each.shape if isinstance(each, np.ndarray) else each for each in inputs]
    told = str(convgrad.explain(operator, *shapes, max_error=64, **SAME))
    assert "tiles of 4x4: 36 points of " in told
    assert f"{norms}: kappa = {kappa}" in told


@pytest.mark.parametrize(("batch", "extent"), [(0, 9), (2, 2)])
def test_nothing_to_sum_is_direct(batch: int, extent: int) -> None:
    """Of no images, or of no positions, whatever is admitted."""
    src, diff_dst = (np.zeros((batch, size, size, 32), np.float32) for size in (extent, extent - 2))
    assert not convgrad.convolution_backward_weights(src, diff_dst, (3, 3, 32, 32), max_error=64).any()


def test_numpy_s_engine_sums_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bound is the direct sum's, by its own height."""
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    explained = convgrad.explain(
        "ConvolutionBackwardWeights", (8, 28, 28, 64), (8, 28, 28, 64), (3, 3, 64, 64), auto_pad="same_upper",
        max_error=64,
    )  # fmt: skip
    assert explained.problem.algorithm == ""
    assert "sum |x||y|" in str(explained)


@runs
def test_an_op_of_a_graph_has_its_own(tmp_path: Path) -> None:
    """Beside others that have none; it is not written."""
    shapes = (SRC.shape, SHAPE, DST.shape, DST.shape)
    src, weights, dst, other = (LogicalTensor(n, "f32", shape) for n, shape in enumerate(shapes))
    graph = Graph([
        Op(0, "Convolution", (src, weights), (dst,), STRICT, max_error=64),
        Op(1, "Convolution", (src, weights), (other,), STRICT),
    ])  # fmt: skip
    graph.finalize()
    assert "max_error=64" in explain(graph)
    given = {0: SRC, 1: WEIGHTS}
    made = graph.run(given).results
    assert_same_bits(made[2], expected("dst", 64), "its own")
    assert_same_bits(made[3], expected("dst", 1), "the default")
    with convgrad.max_error(64):
        assert_same_bits(graph.run(given).results[3], made[2], "the context's")
    write(tmp_path / "layer.json", graph)
    assert "error" not in (tmp_path / "layer.json").read_text()
    with pytest.raises(GraphError, match="max_error must be a number, 1 at least; got 0"):
        Op(0, "Convolution", (src, weights), (dst,), STRICT, max_error=0)


@runs
def test_the_command_line_admits_it_of_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    src, weights, dst = (LogicalTensor(n, "f32", shape) for n, shape in enumerate((SRC.shape, SHAPE, DST.shape)))
    graph = Graph([Op(0, "Convolution", (src, weights), (dst,), STRICT)])
    graph.finalize()
    path, arrays, made = (str(tmp_path / name) for name in ("layer.json", "given.npz", "made.npz"))
    write(path, graph)
    np.savez(arrays, **{"0": SRC, "1": WEIGHTS})
    assert main(["run", path, "--tensors", arrays, "--max-error", "64", "--check", "oracle", "-o", made]) == 0
    assert_same_bits(np.load(made)["2"], expected("dst", 64), "run")
    heights = []
    for options in ([], ["--max-error", "64"]):
        capsys.readouterr()
        assert main(["explain", path, "--json", *options]) == 0
        heights.append(json.loads(capsys.readouterr().out)["ops"][0]["height"])
    assert heights[1] == 40 + 17 < heights[0]

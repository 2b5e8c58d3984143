"""vjp: the gradients of every operator, of its gradients, and of theirs, by their definition, on integers."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import vjp
from convgrad.formats import F32, F64, FORMATS, Format
from convgrad.plan.machine import LINE_BYTES
from convgrad.spec.operators import OPERATORS, Operator
from tests.functional.other_arrays import Theirs
from tests.support.helpers import Case, assert_same_bits, operands_of, random_case
from tests.support.table_rows import rows

Array = np.ndarray
ORDERS = 3  # of derivatives


def integers(rng: np.random.Generator, like: Array) -> Array:
    """Small ones, so that products of some and their sums are exact."""
    return rng.integers(-2, 3, like.shape).astype(like.dtype)


def dot(v: tuple[Array | None, ...], w: tuple[Array | None, ...]) -> float:
    """Return <v, w>, of what is there in both."""
    pairs = zip(v, w, strict=True)
    return sum(float(np.vdot(np.float64(a), np.float64(b))) for a, b in pairs if a is not None and b is not None)


def outputs(op: Operator, attributes: dict[str, Any], variables: list[Any], inputs: int, sizes: list[int]) -> Any:
    """Return what is computed of inputs and the cotangents of each order, of so many outputs, with its pullback."""
    given, at = vjp(op.name, *variables[:inputs], **attributes), inputs
    for order, size in enumerate(sizes):
        cotangents = tuple(variables[at : at + size])
        given, at = given[1].vjp(cotangents if order else cotangents[0]), at + size
    return given


def nonempty(op: Operator, rng: np.random.Generator, axes: int, fmt: Format) -> Case:
    while True:
        case = random_case(rng, op, axes)
        if all(0 not in shape for shape in case.shapes):
            return replace(case, format=fmt, dtype=None)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(100, 160), marks=pytest.mark.long)], ids=["few", "many"]
)
@rows
def test_each_order_is_the_derivative_of_the_one_before(op: Operator, seeds: range) -> None:
    """<u, F(x + d) - F(x)> = <pullback of u, d>, by each variable x: F is linear in each of them."""
    some = 0
    for seed in seeds:
        fmt = F32 if seed % 3 == 2 else F64
        rng = np.random.default_rng([41, seed, OPERATORS.index(op)])
        case = nonempty(op, rng, 1 + seed % 2, fmt)
        ports, variables = op.operands, list(map(np.asarray, operands_of(case, "integers", seed)))
        inputs, sizes = len(variables), []
        shapes = {number for number, port in enumerate(ports[:inputs]) if port.is_shape}
        for order in range(ORDERS):
            found, pullback = outputs(op, case.attributes, variables, inputs, sizes)
            single = order == 0
            each = (found,) if single else found
            u = tuple(None if one is None else integers(rng, one) for one in each)
            gradients = pullback(u[0] if single else u)
            assert len(gradients) == len(variables)
            for number, x in enumerate(variables):
                if number in shapes or x is None:
                    assert gradients[number] is None
                    continue
                d = integers(rng, x)
                moved = [x + d if at == number else one for at, one in enumerate(variables)]
                after = outputs(op, case.attributes, moved, inputs, sizes)[0]
                differences = tuple(
                    None if one is None else np.float64(other) - np.float64(one)
                    for one, other in zip(each, (after,) if single else after, strict=True)
                )
                gradient = gradients[number]
                assert gradient is None or (gradient.shape, gradient.dtype) == (x.shape, x.dtype)
                assert dot(u, differences) == dot((gradient,), (d,)), (case, order, number)
                some += gradient is not None and bool(np.any(gradient))
            variables += u
            sizes.append(len(u))
    assert some > ORDERS


@rows
def test_the_result_and_its_gradients_are_those_of_the_operators(op: Operator) -> None:
    """The bits of ``run``, and only what is asked for, by name or number."""
    case = nonempty(op, np.random.default_rng(OPERATORS.index(op)), 2, F64)
    operands, attributes = operands_of(case, "normal", 0), case.attributes
    result, pullback = vjp(op.name, *operands, **attributes)
    assert_same_bits(result, convgrad.run(op.name, *operands, **attributes), op.name)
    v = np.random.default_rng(0).standard_normal(result.shape)
    every = pullback(v)
    for number, port in enumerate(op.operands[: len(operands)]):
        for needs in ((port.name,), [number], iter([port.name])):
            (one,) = [gradient for gradient in pullback(v, needs) if gradient is not None] or (None,)
            assert (one is None) == port.is_shape
            if one is not None:
                assert_same_bits(one, every[number], op.name)
    assert pullback(v, ()) == (None,) * len(operands)


def test_any_operator_takes_one_int_for_all_axes_and_has_strides_of_one() -> None:
    src, weights = np.ones((1, 6, 6, 1), np.float32), np.ones((3, 3, 1, 1), np.float32)
    strict = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [0, 0]}
    for name in ("Convolution", "Convolution-1", "ConvTranspose"):
        assert_same_bits(vjp(name, src, weights, pads_begin=1)[0], convgrad.run(name, src, weights, **strict), name)


def test_zeros_where_there_is_nothing_to_differentiate() -> None:
    """An image smaller than the kernel: a diff_dst without positions, whose own gradient is empty."""
    src, diff_dst = np.ones((1, 2, 1), np.float32), np.ones((1, 0, 1), np.float32)
    result, pullback = vjp("ConvolutionBackwardWeights", src, diff_dst, (3, 1, 1))
    by_src, by_diff_dst, by_shape = pullback(np.ones_like(result))
    assert_same_bits(by_src, np.zeros_like(src), "src")
    assert (by_diff_dst.shape, by_shape) == (diff_dst.shape, None)


def test_what_a_cotangent_hands_on_is_a_copy() -> None:
    src, bias = np.ones((1, 2, 3), np.float32), np.ones(3, np.float32)
    result, pullback = vjp("BiasAdd", src, bias)
    v = np.ones_like(result)
    assert not np.shares_memory(pullback(v)[0], v)
    for given in (v.astype(">f4"), np.asfortranarray(v), np.broadcast_to(np.float32(1), v.shape)):
        handed = pullback(given)[0]
        assert_same_bits(handed, v, given.strides)
        assert handed.dtype.isnative
        assert handed.flags.c_contiguous
        assert handed.flags.writeable


@rows
def test_all_are_of_the_library_of_the_first_input(op: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result, gradients and theirs; they begin with a line of the caches, as all libraries want it."""
    monkeypatch.setattr(
        "convgrad.functional.pullback.like", lambda value: Theirs if isinstance(value, Theirs) else 1 / 0
    )
    case = nonempty(op, np.random.default_rng(OPERATORS.index(op)), 1, F64)
    first, *others = operands_of(case, "normal", 0)
    result, pullback = vjp(op.name, Theirs(first), *others, **case.attributes)
    found, again = pullback.vjp(result)
    for one in (result, *found, *again(found)):
        if one is not None:
            assert type(one) is Theirs
            assert one.array.ctypes.data % LINE_BYTES == 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_has_the_same_gradients(copied: Callable[[Any], Any]) -> None:
    _, pullback = vjp("Convolution", np.ones((1, 6, 1), np.float32), np.ones((3, 1, 1), np.float32))
    again = copied(pullback)
    assert again.formula == pullback.formula
    for one, other in zip(again(V), pullback(V), strict=True):
        assert_same_bits(one, other, "copied")


def test_a_gradient_is_its_own_cotangent_in_a_penalty() -> None:
    """The squared length of the gradient by src, in bf16 and NCX: by rows of the table, added up."""
    rng = np.random.default_rng(0)
    src, weights, diff_dst = (
        rng.integers(-1, 2, shape).astype("bfloat16") for shape in ((2, 4, 9), (6, 2, 3), (2, 6, 9))
    )
    layer: dict[str, Any] = {"pads_begin": 1, "pads_end": 1, "groups": 2, "data_format": "NCX", "weights_format": "OIX"}
    _, pullback = vjp("Convolution", src, weights, **layer)
    (gradient, none), again = pullback.vjp(diff_dst, needs=("src",))
    assert none is None
    by_src, by_weights, by_v = again((gradient, None))
    assert by_src is None, "the gradient by src does not depend on src"
    assert_same_bits(
        by_weights, convgrad.convolution_backward_weights(gradient, diff_dst, weights.shape, **layer), "weights"
    )
    assert_same_bits(by_v, convgrad.convolution(gradient, weights, **layer), "v")


V = np.ones((1, 4, 1), np.float32)


def test_a_note_is_of_the_callers_line() -> None:
    with pytest.warns(UserWarning, match="output_padding") as caught:
        vjp("ConvolutionBackwardData", V, np.ones((2, 1, 1), np.float32), (1, 9, 1), strides=2, output_padding=0)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_errors_that_numpy_shall_raise_are_no_concern(fmt: Format, activation: str | None) -> None:
    """Of NaN, infinities, overflow and underflow."""
    with np.errstate(all="ignore"):
        hard = np.array([np.nan, np.inf, -np.inf, fmt.largest, -fmt.largest, fmt.tiny, 0, 1]).astype(fmt.dtype)
    src, weights, bias = np.resize(hard, (2, 9, 3)), np.resize(hard, (3, 3, 2)), np.resize(hard, 2)
    with np.errstate(all="raise"):
        dst, pullback = vjp("Convolution", src, weights, bias, activation=activation)
        found, again = pullback.vjp(np.resize(hard, dst.shape))
        again(found)

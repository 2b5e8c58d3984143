"""The gradients of a layer in one call: each has the bits of its own function, whatever is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import (
    Gradients,
    InvalidAttributeError,
    arrays,
    conv_transpose_backward,
    convolution_backward,
    engines,
)
from convgrad.formats import Format
from convgrad.plan.machine import LINE_BYTES
from convgrad.spec.operators import find
from tests.functional.other_arrays import Own, Theirs
from tests.support.helpers import FUNCTIONS, assert_same_bits, random_case
from tests.support.roles import Tensor

Array = np.ndarray
NAMES = Gradients._fields
SUBSETS = list(chain.from_iterable(combinations(NAMES, size) for size in range(4)))
FAMILIES = {convolution_backward: "Convolution", conv_transpose_backward: "ConvTranspose"}
families = pytest.mark.parametrize("joint", FAMILIES, ids=lambda joint: str(joint.__name__))


@dataclass(frozen=True)
class Layer:
    """A layer's arrays and attributes, and its gradients by functions of their own."""

    joint: Callable[..., Gradients]
    src: Array
    diff_dst: Array
    weights: Array
    attributes: dict[str, Any]

    def __call__(self, **options: Any) -> Gradients:
        return self.joint(self.src, self.diff_dst, self.weights, **self.attributes, **options)

    def separate(self, name: str, **options: Any) -> Array:
        family = FAMILIES[self.joint]
        if name == "weights":
            given: tuple[Any, ...] = (self.src, self.diff_dst, self.weights.shape)
            return np.asarray(FUNCTIONS[f"{family}BackwardWeights"](*given, **self.attributes, **options))
        if name == "bias":
            data_format = self.attributes["data_format"]
            return np.asarray(convgrad.bias_add_backward(self.diff_dst, data_format=data_format, **options))
        given = (self.diff_dst, self.weights, *([self.src.shape] if family == "Convolution" else []))
        return np.asarray(FUNCTIONS[f"{family}BackwardData"](*given, **self.attributes, **options))


def layer(joint: Callable[..., Gradients], seed: int) -> Layer:
    """Return a random layer, of any geometry, layout and type."""
    rng = np.random.default_rng([5, seed, list(FAMILIES).index(joint)])
    case = random_case(rng, find(f"{FAMILIES[joint]}BackwardWeights"), axes=1 + seed % 3)
    attributes = dict(case.attributes)
    shapes = (*case.shapes, attributes.pop("weights_shape", None))[:3]
    src, diff_dst, weights = (rng.standard_normal(shape).astype(case.format.dtype) for shape in shapes)
    return Layer(joint, src, diff_dst, weights, attributes)


@families
@pytest.mark.parametrize(
    "seeds", [range(5), pytest.param(range(100, 200), marks=pytest.mark.long)], ids=["few", "many"]
)
def test_each_has_the_bits_of_its_own_function(joint: Callable[..., Gradients], seeds: range) -> None:
    for seed in seeds:
        one = layer(joint, seed)
        for name, gradient in one()._asdict().items():
            assert_same_bits(gradient, one.separate(name), (name, seed))


@families
def test_what_is_not_asked_for_is_not_computed(
    joint: Callable[..., Gradients], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, computed = layer(joint, 1), list[str]()
    execute = engines.execute

    def counted(problem: Any, *rest: Any) -> Any:
        computed.append(problem.output)
        return execute(problem, *rest)

    every = one()
    monkeypatch.setattr(engines, "execute", counted)
    for needs in SUBSETS:
        for order in (needs, list(reversed(needs)), set(needs), iter(needs)):
            computed.clear()
            found = one(needs=order)
            assert len(computed) == len(needs)
            for name in NAMES:
                gradient = getattr(found, name)
                assert (gradient is not None) == (name in needs)
                if gradient is not None:
                    assert_same_bits(gradient, getattr(every, name), (name, needs))


@families
@pytest.mark.parametrize("given", [tuple, list, np.array], ids=["tuple", "list", "array"])
def test_a_shape_does_where_the_array_is_not_read(joint: Callable[..., Gradients], given: Callable[..., Any]) -> None:
    one = layer(joint, 2)
    src, weights = given(one.src.shape), given(one.weights.shape)
    for needs, operands in (
        (["weights", "bias"], (one.src, one.diff_dst, weights)),
        (["src", "bias"], (src, one.diff_dst, one.weights)),
        (["bias"], (src, one.diff_dst, weights)),
    ):
        found, expected = joint(*operands, **one.attributes, needs=needs), one(needs=needs)
        for name in needs:
            assert_same_bits(getattr(found, name), getattr(expected, name), name)


@families
def test_each_has_its_type(joint: Callable[..., Gradients]) -> None:
    one = layer(joint, 3)
    wide = Layer(joint, *(a.astype(np.float64) for a in (one.src, one.diff_dst, one.weights)), one.attributes)
    for dtype in ("f16", {"weights": np.float32, "bias": "bf16"}, {}):
        for name, gradient in wide(dtype=dtype)._asdict().items():
            of = dtype.get(name) if isinstance(dtype, dict) else dtype
            assert_same_bits(gradient, wide.separate(name, dtype=of), (name, dtype))


@families
def test_buffers_are_filled_and_added_to(joint: Callable[..., Gradients]) -> None:
    """By a mapping or a tuple; all that are given, or those that are named; those beside are new."""
    one = layer(joint, 4)
    plain = one()
    outs = Gradients(*(np.full_like(gradient, np.nan) for gradient in plain))
    found = one(out=outs)
    for name in NAMES:
        assert getattr(found, name) is getattr(outs, name)
        assert_same_bits(getattr(found, name), getattr(plain, name), name)
    before = {name: gradient.copy() for name, gradient in plain._asdict().items()}
    twice = {name: one.separate(name, out=gradient.copy(), accumulate=True) for name, gradient in before.items()}
    buffers = {name: before[name].copy() for name in ("weights", "bias")}
    found = one(out=buffers, accumulate=True)
    assert found.weights is buffers["weights"]
    for name, expected in (twice | {"src": plain.src}).items():
        assert_same_bits(getattr(found, name), expected, name)
    before_src = outs.src.copy()
    assert one(out=outs, needs=["weights"], accumulate=["src", "weights"])[::2] == (None, None)
    assert_same_bits(outs.src, before_src, "not asked for")
    one(out=outs, accumulate=np.False_)
    for name in NAMES:
        assert_same_bits(getattr(outs, name), getattr(plain, name), name)
    found = one(out=outs, accumulate=["bias"])
    for name, expected in (before | {"bias": twice["bias"]}).items():
        assert_same_bits(getattr(found, name), expected, name)


def test_other_arrays_come_through_the_door() -> None:
    one = layer(convolution_backward, 0)
    f32 = [a.astype(np.float32) for a in (one.src, one.diff_dst, one.weights)]
    expected = convolution_backward(*f32, **one.attributes)
    others: list[list[Any]] = [
        list(map(Tensor, f32)),
        [a.astype(">f4") for a in f32],
        [np.asfortranarray(a) for a in f32],
        [np.flip(np.flip(a).copy()) for a in f32],
    ]
    for operands in others:
        for found, gradient in zip(convolution_backward(*operands, **one.attributes), expected, strict=True):
            assert_same_bits(np.asarray(found), gradient, type(operands[0]))


@families
def test_an_out_of_a_subclass_is_written_as_an_array(joint: Callable[..., Gradients]) -> None:
    one = layer(joint, 5)
    outs = Gradients(*(np.empty_like(gradient).view(Own) for gradient in one()))
    for found, out, gradient in zip(one(out=outs), outs, one(), strict=True):
        assert found is out
        assert_same_bits(np.asarray(found), gradient, "own")


@families
def test_what_the_checks_conclude_is_remembered_of_a_kind(
    joint: Callable[..., Gradients], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = layer(joint, 6)
    every = one()
    monkeypatch.setattr("convgrad.functional.joint._asked", lambda *_: pytest.fail("checked again"))
    other = Layer(joint, *(2 * array for array in (one.src, one.diff_dst, one.weights)), one.attributes)
    for gradient, doubled, factor in zip(every, other(), (4, 4, 2), strict=True):
        assert_same_bits(doubled, (factor * gradient.astype(np.float64)).astype(gradient.dtype), factor)


@families
def test_gradients_are_of_the_library_of_the_first_array(
    joint: Callable[..., Gradients], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of src, or of diff_dst where src is a shape; and begin with a line of the caches, as all libraries want it."""
    monkeypatch.setattr(
        "convgrad.arrays.libraries.like", lambda value: Theirs if isinstance(value, Theirs) else np.asarray
    )
    one = layer(joint, 1)
    src, diff_dst, weights = one.src, one.diff_dst, one.weights
    for operands, needs, kind in (
        ((Theirs(src), diff_dst, weights), NAMES, Theirs),
        ((src, Theirs(diff_dst), Theirs(weights)), NAMES, np.ndarray),
        ((src.shape, Theirs(diff_dst), weights), ("src", "bias"), Theirs),
    ):
        found = [getattr(joint(*operands, **one.attributes, needs=needs), name) for name in needs]
        assert {type(gradient) for gradient in found} == {kind}
        if kind is Theirs:
            assert all(gradient.array.ctypes.data % LINE_BYTES == 0 for gradient in found)


def test_no_operand_is_put_in_order_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    native, looked_at = arrays.native, list[Array]()

    def watched(array: Array, fmt: Format) -> Array:
        looked_at.append(array)
        return native(array, fmt)

    monkeypatch.setattr(arrays, "native", watched)
    operands = [np.ones(shape, ">f4") for shape in ((1, 6, 1), (1, 4, 1), (3, 1, 1))]
    convolution_backward(*operands)
    assert sorted(map(id, looked_at)) == sorted(map(id, operands))


@families
def test_the_attributes_are_those_of_the_forward(joint: Callable[..., Gradients]) -> None:
    ours = inspect.signature(joint).parameters
    forward = inspect.signature(FUNCTIONS[FAMILIES[joint]]).parameters
    attributes = [name for name in forward if find(FAMILIES[joint]).attribute(name)]
    assert [*ours] == ["src", "diff_dst", "weights", *attributes[:8], "needs", "dtype", "out", "accumulate", "threads",
                       "max_error",
                       *attributes[8:]]  # fmt: skip
    assert all(ours[name] == forward[name] for name in attributes)
    one = layer(joint, 0)
    for name in attributes:
        with pytest.raises(InvalidAttributeError, match=rf"^{joint.__name__}: {name} must be .*\[A2\]$"):
            joint(one.src, one.diff_dst, one.weights, **one.attributes | {name: 1.5})

"""Laws that tie the operators to each other, on integers, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import convgrad
from convgrad.formats import F32
from convgrad.spec.layouts import from_canonical, to_canonical
from convgrad.spec.operators import find
from tests.support.helpers import Case, assert_same_bits, operands_of, random_case
from tests.support.tiers import tiers

SEEDS = range(60)


def forward_and_gradients(case: Case, seed: int) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Return src, weights, diff_dst, dst, diff_src, diff_weights of a case of Convolution or ConvTranspose."""
    src, weights, *_ = operands_of(case, "integers", seed)
    assert isinstance(src, np.ndarray)
    assert isinstance(weights, np.ndarray)
    name, attributes = case.op.name, case.attributes
    dst = convgrad.run(name, src, weights, **attributes)
    diff_dst = np.random.default_rng(seed).integers(-4, 5, dst.shape).astype(dst.dtype)
    plain = {a: v for a, v in attributes.items() if a != "output_padding"}
    shape = (src.shape,) if name == "Convolution" else ()
    diff_src = convgrad.run(f"{name}BackwardData", diff_dst, weights, *shape, **attributes)
    diff_weights = convgrad.run(f"{name}BackwardWeights", src, diff_dst, weights.shape, **attributes)
    tensors = {"src": src, "weights": weights, "diff_dst": diff_dst, "dst": dst}
    return tensors | {"diff_src": diff_src, "diff_weights": diff_weights}, plain


def f32_case(seed: int, name: str) -> Case:
    rng = np.random.default_rng([seed, len(name)])
    case = random_case(rng, find(name))
    return replace(case, shapes=case.shapes[:2], format=F32, dtype=None)


def inner(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.vdot(a.astype(np.float64), b.astype(np.float64)))


@tiers("name, seed", ["Convolution", "ConvTranspose"], SEEDS, every=25)
def test_adjoint_identity_over_all_three_roles(seed: int, name: str) -> None:
    """<dst, diff_dst> = <src, diff_src> = <weights, diff_weights>."""
    t, _ = forward_and_gradients(f32_case(seed, name), seed)
    assert inner(t["dst"], t["diff_dst"]) == inner(t["src"], t["diff_src"]) == inner(t["weights"], t["diff_weights"])


@pytest.mark.every(7)
@pytest.mark.parametrize("name", ["Convolution", "ConvTranspose"])
@pytest.mark.parametrize("seed", range(20))
def test_linearity(seed: int, name: str) -> None:
    """f(a + b, w) = f(a, w) + f(b, w) in each operand."""
    case = f32_case(seed, name)
    src, weights, *_ = operands_of(case, "integers", seed)
    other_src, other_weights, *_ = operands_of(case, "integers", seed + 1000)

    def f(x: object, w: object) -> np.ndarray:
        return convgrad.run(name, x, w, **case.attributes)

    assert_same_bits(f(np.add(src, other_src), weights), f(src, weights) + f(other_src, weights) + 0, case)
    assert_same_bits(f(src, np.add(weights, other_weights)), f(src, weights) + f(src, other_weights) + 0, case)


def move(case: Case, operands: tuple[object, ...], attributes: dict[str, object]) -> tuple[object, ...]:
    """Return the operands laid out as ``attributes`` say, shape operands included."""
    moved: list[object] = []
    for port, operand in zip(case.op.operands, operands, strict=False):
        array = np.asarray(operand)
        if port.is_shape:
            moved.append(relaid(case, attributes, port.tensor, array.tolist()))
        elif port.tensor == "bias":
            moved.append(array)
        else:
            order = relaid(case, attributes, port.tensor, range(array.ndim))
            moved.append(np.ascontiguousarray(array.transpose(order)))
    return tuple(moved)


def relaid(case: Case, attributes: dict[str, object], tensor: str, values: Sequence[int]) -> tuple[int, ...]:
    """Return one value per axis of a tensor in the order of the axes that ``attributes`` say."""
    attribute = case.op.attribute("weights_format" if tensor == "weights" else "data_format")
    assert attribute is not None
    old, new = (str(given[attribute.name]) for given in (case.attributes, attributes))
    return from_canonical(to_canonical(values, old), new)


@pytest.mark.every(6)
@pytest.mark.parametrize("name", ["Convolution", "ConvTranspose"])
@pytest.mark.parametrize("seed", range(30))
def test_groups_are_concatenation(seed: int, name: str) -> None:
    """A grouped operator is its groups computed apart and concatenated along the channels."""
    case = f32_case(seed, name)
    groups = int(case.attributes["groups"])
    leading = {"Convolution": "OIX", "ConvTranspose": "IOX"}[name]
    attributes = dict(case.attributes) | {"data_format": "NCX", "weights_format": leading}
    operands = move(case, operands_of(case, "integers", seed), attributes)
    canonical = replace(case, shapes=tuple(np.shape(o) for o in operands), attributes=attributes)
    whole, _ = forward_and_gradients(canonical, seed)
    split = {key: np.split(array, groups, axis=0 if "weights" in key else 1) for key, array in whole.items()}
    single = attributes | {"groups": 1}
    for g in range(groups):
        x, w, dy = split["src"][g], split["weights"][g], split["diff_dst"][g]
        assert_same_bits(convgrad.run(name, x, w, **single), split["dst"][g].copy(), case)
        shape = (x.shape,) if name == "Convolution" else ()
        diff_src = convgrad.run(f"{name}BackwardData", dy, w, *shape, **single)
        assert_same_bits(diff_src, split["diff_src"][g].copy(), case)
        diff_weights = convgrad.run(f"{name}BackwardWeights", x, dy, w.shape, **single)
        assert_same_bits(diff_weights, split["diff_weights"][g].copy(), case)


@pytest.mark.every(5)
@pytest.mark.parametrize("seed", range(30))
def test_transposed_operators_are_the_plain_ones_exchanged(seed: int) -> None:
    """ConvTranspose is the data gradient, its data gradient the forward, its weight gradient the exchanged one."""
    case = f32_case(seed, "ConvTranspose")
    if str(case.attributes["auto_pad"]).startswith("same"):  # the two families deduce different pads there
        case.attributes["auto_pad"] = "valid"
    t, plain = forward_and_gradients(Case(case.op, case.shapes, case.attributes), seed)
    plain["weights_format"] = {"XOI": "XIO", "IOX": "OIX"}[str(plain["weights_format"])]
    conv = "Convolution"
    strides, dilations = case.attributes["strides"], case.attributes["dilations"]
    if all(p < s for p, s in zip(case.attributes["output_padding"], strides, strict=True)):
        again = convgrad.run(f"{conv}BackwardData", t["src"], t["weights"], t["dst"].shape, **plain)
        assert_same_bits(t["dst"], again, case)
        assert_same_bits(t["diff_src"], convgrad.run(conv, t["diff_dst"], t["weights"], **plain), case)
        again = convgrad.run(f"{conv}BackwardWeights", t["diff_dst"], t["src"], t["weights"].shape, **plain)
        assert_same_bits(t["diff_weights"], again, case)
    else:
        assert any(d > s for s, d in zip(strides, dilations, strict=True))


@pytest.mark.parametrize("name", ["Convolution", "ConvTranspose"])
def test_bias_is_bias_add(name: str) -> None:
    case = f32_case(3, name)
    src, weights, *_ = operands_of(case, "integers", 3)
    dst = convgrad.run(name, src, weights, **case.attributes)
    channels = dst.shape[1] if case.attributes["data_format"] == "NCX" else dst.shape[-1]
    bias = np.arange(channels, dtype=np.float32)
    both = convgrad.run(name, src, weights, bias, **case.attributes)
    assert_same_bits(both, convgrad.bias_add(dst, bias, data_format=case.attributes["data_format"]), case)


@pytest.mark.parametrize("seed", range(10))
def test_a_batch_is_the_sum_of_its_images(seed: int) -> None:
    """Accumulating image by image into ``out`` gives the batch's weight gradient."""
    case = f32_case(seed, "Convolution")
    t, _ = forward_and_gradients(case, seed)
    out = np.zeros_like(t["diff_weights"])
    attributes = {a: v for a, v in case.attributes.items() if a != "output_padding"}
    for n in range(t["src"].shape[0]):
        x, dy = t["src"][n : n + 1], t["diff_dst"][n : n + 1]
        convgrad.run("ConvolutionBackwardWeights", x, dy, out.shape, out=out, accumulate=True, **attributes)
    assert_same_bits(out, t["diff_weights"], case)

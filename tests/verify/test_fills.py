"""Operands made up: what each kind promises of the sums."""

from __future__ import annotations

import numpy as np
import pytest

from convgrad import engines
from convgrad.formats import FORMATS, Format, round_to
from convgrad.functional.call import problem_from_shapes
from convgrad.notation import calls, read
from convgrad.spec.problem import Problem
from convgrad.verify.compare import sum_bound
from convgrad.verify.fill import KINDS, Kind, fill
from convgrad.verify.reference import certify
from convgrad.verify.terms import terms_of
from tests.support.classes import ALL_TYPES

Array = np.ndarray
GEOMETRIES = (
    "FWD_D {} NXC mb2ic5ih9oc6oh9kh3ph1",
    "FWD_D {} NCX g4mb2ic4iw31oc4kw5sw2",
    "BWD_D {} NXC mb2ic6ih9oc8oh5kh3sh2ph1",
    "BWD_D {} NCX g2mb1ic6ih8iw7oc10kh3kw2dh1dw1",
    "BWD_W {} NXC mb3ic5ih8iw9oc6kh3kw3ph1pw1",
    "BWD_W {} NCX g5mb1ic5iw700oc10kw2",
    "deconv FWD_D {} NXC mb2ic4ih5oc7kh3sh2",
    "deconv BWD_W {} NCX mb2ic4ih5oc7kh3sh2",
    "FWD_D {} NXC mb2ic1ih8oc5kh1",
)
TYPES = (("f32", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32"), ("f16", "f32"), ("f32", "bf16"))
TYPES += (("f16", "f8_e5m2"), ("bf16", "f8_e4m3"))


def made(line: str, kind: Kind, output: str) -> tuple[Problem, tuple[Array, ...]]:
    """Return a problem and canonical operands."""
    *_, call = calls(read(line))
    op, problem = problem_from_shapes(call.operator, call.shapes, call.attributes, call.format, FORMATS[output])
    shapes = [shape for port, shape in zip(op.operands, call.shapes, strict=False) if not port.is_shape]
    operands = fill(problem, shapes, kind, 0)
    return problem, tuple(a.transpose(o) for a, o in zip(operands, problem.operand_orders, strict=True))


def cut_off(values: Array, fmt: Format) -> Array:
    """Return values with the bits cut off that a format does not hold."""
    _, exponent = np.frexp(values)
    last = np.maximum(exponent, fmt.min_exponent + 1) - fmt.significand_bits
    return np.ldexp(np.trunc(np.ldexp(values, -last)), last)


@pytest.mark.every(3)
@pytest.mark.parametrize("line", [*GEOMETRIES, "BWD_WB {} NXC mb2ic1ih9oc7oh9kh3ph1"])
@pytest.mark.parametrize(("operand", "output"), TYPES, ids="-".join)
def test_cutting_bits_off_is_told_from_rounding(line: str, operand: str, output: str) -> None:
    """At a quarter of the elements that have terms; while sums in f32, in any order, are rounded as the exact one."""
    problem, operands = made(line.format(operand), "truncation", output)
    fmt, reference = FORMATS[output], certify(problem, operands)
    nearest, cut = (rounding(reference.value, fmt) for rounding in (round_to, cut_off))
    if reference.terms.max() > 1 or 2 * FORMATS[operand].significand_bits > fmt.significand_bits:  # not always exact
        assert np.mean((nearest != cut)[reference.nonzero > 0]) >= 0.25
    assert np.isfinite(nearest).all()
    rng = np.random.default_rng(0)
    for flat in rng.permutation(nearest.size)[:12]:
        index = np.unravel_index(flat, nearest.shape)
        terms = terms_of(problem, operands, tuple(map(int, index)))
        products = rng.permutation(terms.products.ravel()).astype(np.float32)
        total = np.float32(0)
        for product in products:
            total = total + product
        assert round_to(np.float64(total), fmt) == nearest[index], (index, products[products != 0])


@pytest.mark.parametrize("line", GEOMETRIES[::3])
def test_the_engine_rounds_to_nearest(line: str) -> None:
    for operand, output in TYPES:
        problem, operands = made(line.format(operand), "truncation", output)
        got = np.empty(problem.output_shape, problem.output_format.dtype).transpose(problem.output_order)
        engines.execute(problem, operands, got, None)
        assert np.array_equal(got, certify(problem, operands).rounded(problem.output_format))


@pytest.mark.every(4)
@pytest.mark.parametrize("line", GEOMETRIES)
@pytest.mark.parametrize("operand", ALL_TYPES)
def test_what_is_adversarial(line: str, operand: str) -> None:
    """Operands reach both ends of the format; results are finite, most bounds are, and some sums cancel."""
    problem, operands = made(line.format(operand), "adversarial", operand)
    fmt, reference = FORMATS[operand], certify(problem, operands)
    values = np.concatenate([np.asarray(a, np.float64).ravel() for a in operands])
    assert np.isfinite(values).all()
    zeros = np.signbit(values[values == 0])
    assert zeros.any()
    assert not zeros.all()
    if min(operands[0].shape[:2]) > 1 and problem.geometry.groups == 1:  # something is shared
        assert np.abs(values).max() > 2.0 ** (0.6 * fmt.max_exponent)
        assert np.abs(values[values != 0]).min() < 2.0**fmt.min_exponent
    assert np.isfinite(reference.rounded(fmt).astype(np.float64)).mean() > 0.9
    bound = sum_bound(reference, fmt.accumulator, reference.terms)
    assert np.isfinite(bound).mean() > 0.9


@pytest.mark.parametrize("operand", FORMATS)
def test_operands_of_every_kind_are_finite(operand: str) -> None:
    """Whatever the format of the result is; NaN would make every result right."""
    for line in GEOMETRIES[::3]:
        for output in FORMATS if operand == "f64" else [name for name in FORMATS if name != "f64"]:
            for kind in KINDS:
                made_up = made(line.format(operand), kind, output)[1]
                assert all(np.isfinite(a.astype(np.float64)).all() for a in made_up), (line, output, kind)


def test_every_kind_is_the_same_for_a_seed() -> None:
    for kind in KINDS:
        assert made("BWD_W f32 NXC mb0ic3ih5oc4kh3", kind, "f32")[1][0].size == 0
        one, two = (made("BWD_W bf16 NXC mb2ic3ih5oc4kh3", kind, "bf16")[1] for _ in range(2))
        assert all(a.tobytes() == b.tobytes() for a, b in zip(one, two, strict=True))


def test_adversarial_sums_cancel() -> None:
    """Some sums are smaller than the error that a sum of 8 bits makes; some lie exactly between two results."""
    problem, operands = made("FWD_D f16 NXC mb2ic64ih6oc8oh6kh3ph1", "adversarial", "f16")
    reference, fmt = certify(problem, operands), FORMATS["f16"]
    small = np.abs(reference.value) < 2.0**-8 * reference.magnitude
    assert small.mean() > 0.02
    problem, operands = made("FWD_D bf16 NXC mb4ic2ih6oc8oh6kh1", "adversarial", "bf16")
    value, fmt = certify(problem, operands).value, FORMATS["bf16"]
    _, exponent = np.frexp(value)
    last = np.ldexp(value, fmt.significand_bits - exponent)
    ties = (np.abs(last - np.trunc(last)) == 0.5) & (value != 0)
    assert ties.any()

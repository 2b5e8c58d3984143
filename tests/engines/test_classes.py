"""Every class of weight gradients on the generated engine: integers, normal numbers, and one hash however it is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

import convgrad
from convgrad import engines
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.notation import problem
from convgrad.spec.check import check_attributes
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import axis_order
from convgrad.spec.operators import Operator, find
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import problem_of
from convgrad.verify.fill import Kind
from tests.engines.runs import assert_bounded, assert_exact, refuse_numpy, run_anyhow
from tests.support.classes import CLASSES, WEIGHTS, any_case, case_of, draw, layouts_of, line_of, rest_of
from tests.support.engine_helpers import HOST, SMALL, Array, digest
from tests.support.tiers import tiers

pytestmark = pytest.mark.usefixtures("eight_cores")  # so many threads run

PAIRS = (("f32", "f32"), ("bf16", "f32"), ("f16", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("f32", "bf16"))
MAXIMUM = 1_000_000  # multiply-adds of a problem that the oracle solves
CUT, LARGE = 3_500_000, 8_000_000  # from the first on, calls are cut for threads
TERMS = 3000  # of a sum that is executed in the specified order
QUICK = 16  # problems of a class: as many as a field has choices, at most
QUICK_SEEDS = (0, 7, 2)  # of three pairs of types and both instruction sets
CHUNKS, CHUNK = range(100, 125), 100  # of each class in the long tier
HASHED = range(100, 110)
QUICK_THREADS, THREADS = (1, 2, 3, 5), range(1, 9)
CONV, TRANSPOSE = find("ConvolutionBackwardWeights"), find("ConvTransposeBackwardWeights")

classes = pytest.mark.parametrize("name", CLASSES)
_counts = {"normal": 0, "integers": 0, "hashed": 0, "runs": 0, "in the specified order": 0}


@pytest.fixture(autouse=True)
def only_the_generated_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_numpy(monkeypatch)


def number_of(name: str) -> int:
    return list(CLASSES).index(name)


def quick_seed(name: str) -> int:
    return QUICK_SEEDS[number_of(name) % len(QUICK_SEEDS)]


def problems(name: str, seed: int, count: int, most: int = MAXIMUM, least: int = 0) -> list[Conv]:
    """Return the problems of one chunk of a class."""
    return list(islice(draw(CLASSES[name], np.random.default_rng([61, number_of(name), seed]), most, least), count))


# -- against the oracle ------------------------------------------------------------------------------------------------


def run_chunk(name: str, seed: int, kind: Kind, count: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Assert on problems of a class that share types and instruction set; return the largest error over its bound."""
    row, pair = divmod(seed, len(PAIRS))
    isa, (operand, output) = HOST[row % len(HOST)], (FORMATS[fmt] for fmt in PAIRS[pair])
    monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
    rng, shares = np.random.default_rng([62, number_of(name), seed]), [0.0]
    for conv in problems(name, seed, count):
        one = run_anyhow(any_case(conv, rng, operand, output), rng, kind, isa)
        shares.append(assert_exact(one) if kind == "integers" else assert_bounded(one))
        _counts[kind] += 1
    return max(shares)


@tiers("name", list(CLASSES), every=7)
def test_integers_give_the_bits_of_the_oracle(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_chunk(name, quick_seed(name), "integers", QUICK // 2, monkeypatch)


@tiers("name", list(CLASSES), every=7)
def test_normal_numbers_keep_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_chunk(name, quick_seed(name), "normal", QUICK // 2, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seed", CHUNKS)
@classes
def test_40000_on_normal_numbers(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_chunk(name, seed, "normal", CHUNK, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seed", CHUNKS[: len(CHUNKS) // 4 + 1])
@classes
def test_10000_on_integers(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_chunk(name, seed, "integers", CHUNK, monkeypatch)


# -- one hash ----------------------------------------------------------------------------------------------------------


def laid_out(array: Array, layout: str) -> Array:
    """Return canonical values as a dense array of a layout."""
    return np.ascontiguousarray(array.transpose(np.argsort(axis_order(layout, array.ndim))))


def digests_of(
    conv: Conv,
    op: Operator,
    types: tuple[str, str],
    accumulate: bool,
    threads: Sequence[int],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[tuple[object, ...], str]:
    """Run a problem in every way, each into an output of its own, full of NaN or of the old value."""
    (operand, output), rng = (FORMATS[fmt] for fmt in types), np.random.default_rng([63, *conv.weights_shape])
    shapes = {"src": conv.src_shape, "dst": conv.dst_shape}
    values = {t: rng.standard_normal(shape, np.float32).astype(operand.dtype) for t, shape in shapes.items()}
    old = rng.standard_normal(conv.weights_shape).astype(output.dtype) if accumulate else None
    digests: dict[tuple[object, ...], str] = {}
    for number, layouts in enumerate(layouts_of(op)):
        case = case_of(conv, op, layouts, operand, output)
        ports = zip(op.operands, case.shapes, strict=True)
        operands = [np.array(s) if p.is_shape else laid_out(values[p.tensor], layouts[0]) for p, s in ports]
        for isa in HOST:
            monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
            prepared = prepare(op.name, tuple(operands), case.attributes, case.dtype, accumulate)
            choice = engines.choose(prepared.problem)
            assert (choice.engine, choice.detail) == ("generated", isa), case
            for used in threads if number < 2 else threads[:1]:
                out = np.full(prepared.problem.output_shape, np.nan, output.dtype)
                if old is not None:
                    prepared.canonical_output(out)[...] = old
                digests[*layouts, isa, used] = digest(prepared.canonical_output(prepared.execute(out, used)))
        if number == 0 and conv.multiply_adds < SMALL and conv.batch * conv.positions <= TERMS:
            expected = evaluate_in_order(prepared.problem, prepared.operands, old)
            digests["the specified order",] = digest(expected)
    return digests


def assert_one_hash(
    conv: Conv,
    number: int,
    types: tuple[str, str],
    threads: Sequence[int],
    monkeypatch: pytest.MonkeyPatch,
    accumulate: bool = False,
) -> None:
    digests = digests_of(conv, TRANSPOSE if number % 4 == 3 else CONV, types, accumulate, threads, monkeypatch)
    assert len(set(digests.values())) == 1, (conv, types, digests)
    _counts["hashed"] += 1
    _counts["runs"] += len(digests)
    _counts["in the specified order"] += ("the specified order",) in digests


def hash_chunk(
    name: str, seed: int, counts: tuple[int, int], threads: Sequence[int], types: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Assert on so many small problems, and so many that are cut for threads."""
    few, many = counts
    convs = problems(name, seed, few, SMALL - 1) + problems(name, seed + 1000, many, LARGE, CUT)
    for number, conv in enumerate(convs):
        assert_one_hash(conv, number, types, threads, monkeypatch, accumulate=number % 3 == 1)


@tiers("name", list(CLASSES), every=7)
def test_one_hash(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hash_chunk(name, 0, (2, 1), QUICK_THREADS, PAIRS[0], monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seed", HASHED)
@classes
def test_one_hash_of_300(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hash_chunk(name, seed, (1, 1), THREADS, PAIRS[seed % len(PAIRS)], monkeypatch)


# -- single problems, and the table ------------------------------------------------------------------------------------

LINES = {
    "31x31 depthwise": "g20mb1ic20ih28oc20kh31ph15",
    "a long kernel": "mb1ic2iw400oc3kw300pw150",
    "100,000 terms in a row": "mb1ic1iw100000oc1kw1pw0",
    "100,000 images": "mb100000ic1iw1oc1kw1pw0",
    "10 images of 100 x 100": "mb10ic1ih100oc1kh1ph0",
}
LONG_LINES = {
    "kernel 4096": "mb1ic2iw5000oc3kw4096pw2048",
    "kernel 4096 depthwise": "g16mb1ic16iw4096oc16kw4096pw4095",
    "kernel 4096, stride 7": "mb2ic1iw30000oc4kw4096sw7pw0",
    "a million terms in a row": "mb1ic1iw1000000oc1kw1pw0",
    "a million images": "mb1000000ic1iw1oc1kw1pw0",
    "1000 images of 1000": "mb1000ic1iw1000oc1kw1pw0",
    "a million terms of three channels": "mb1ic3ih1000oc3kh1ph0",
}
MARKED = [*LINES, *(pytest.param(name, marks=pytest.mark.long) for name in LONG_LINES)]


@pytest.mark.parametrize("name", MARKED)
def test_single_problems(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers, normal numbers, and one hash."""
    conv = problem(f"BWD_W f32 NXC {(LINES | LONG_LINES)[name]}").geometry
    assert isinstance(conv, Conv)
    for number, isa in enumerate(HOST):
        monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
        rng = np.random.default_rng([64, number])
        case = case_of(conv, CONV, layouts_of(CONV)[number % 2], FORMATS["f32"], FORMATS["f32"])
        assert_exact(run_anyhow(case, rng, "integers", isa))
        assert_bounded(run_anyhow(case, rng, "normal", isa))
    assert_one_hash(conv, 0, PAIRS[0], QUICK_THREADS if name in LINES else THREADS, monkeypatch)


@classes
def test_explain_chooses_the_generated_engine(name: str) -> None:
    for conv in problems(name, 0, 3):
        case = case_of(conv, CONV, layouts_of(CONV)[0], FORMATS["f32"], FORMATS["f32"])
        explanation = convgrad.explain(CONV.name, *case.shapes, **case.attributes)
        assert explanation.choice.engine == "generated"
        assert explanation.problem.geometry == conv
        assert explanation.plan is not None


@classes
def test_the_quick_problems_have_every_choice(name: str) -> None:
    one, convs = CLASSES[name], problems(name, quick_seed(name), QUICK)
    axes = [axis for conv in convs for axis in conv.axes]
    assert {conv.groups for conv in convs} == set(one.groups)
    assert {conv.src_channels // conv.groups for conv in convs} == set(one.inner)
    assert {conv.dst_channels // conv.groups for conv in convs} == set(one.outer)
    assert {len(conv.axes) for conv in convs} == set(one.axes)
    assert {axis.kernel for axis in axes} == set(one.kernel)
    assert {axis.dilation for axis in axes} == set(one.dilations)
    assert {axis.stride for axis in axes} == set(one.kernel if one.patches else one.strides)
    assert all(conv.multiply_adds <= MAXIMUM or conv.batch * conv.positions == 1 for conv in convs)


@classes
def test_calls_and_lines_say_the_problem(name: str) -> None:
    """A call may leave more of a transposed operator's output behind, a line leaves nothing."""
    rng = np.random.default_rng(number_of(name))
    for conv in problems(name, 1, 40):
        case = any_case(conv, rng, FORMATS["f32"], FORMATS["f32"])
        attributes = check_attributes(case.op, case.attributes, len(conv.axes))
        called = problem_of(case.op, case.shapes, attributes, case.format, case.format).geometry
        assert called == conv or (case.op.transposed and called == with_src_of(conv, called)), case
        if len(conv.axes) <= 3:
            for transposed in (False, True):
                said = problem(line_of(conv, "f32", "NCX", transposed)).geometry
                assert (said == conv) == all(rest_of(a) == 0 for a in conv.axes)
                assert isinstance(said, Conv)
                assert said.dst_shape == conv.dst_shape
                assert said.weights_shape == conv.weights_shape


def test_calls_are_given_in_every_way() -> None:
    rng = np.random.default_rng(65)
    cases = [any_case(conv, rng, FORMATS["f32"], FORMATS["f32"]) for conv in problems("dense", 2, 100)]
    assert {case.op for case in cases} == set(WEIGHTS)
    assert {case.attributes.get("auto_pad") for case in cases} == {None, "valid", "same_upper", "same_lower"}
    transposed = [case for case in cases if case.op.transposed]
    assert {"output_padding" in case.attributes for case in transposed} == {True, False}
    assert {len(case.shapes) == len(case.op.operands) for case in cases} == {True, False}
    assert {"pads_begin" in case.attributes for case in cases if "auto_pad" in case.attributes} == {True, False}


def with_src_of(conv: Conv, other: object) -> Conv:
    assert isinstance(other, Conv)
    pairs = zip(conv.axes, other.axes, strict=True)
    return replace(conv, axes=tuple(replace(a, src=max(a.src, b.src)) for a, b in pairs))

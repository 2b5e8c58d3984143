"""Problems run as callers may: operands that lie anyhow, old values to add to; held against the oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines import numpy as by_numpy
from convgrad.formats import F32
from convgrad.functional.call import Prepared, prepare
from convgrad.spec import exact_result
from convgrad.spec.bound import error_bound
from convgrad.spec.geometry import Conv
from convgrad.spec.winograd.choice import DIRECT
from convgrad.verify.bound import bound_of
from convgrad.verify.compare import compare
from convgrad.verify.declared import declared
from convgrad.verify.fill import Kind
from tests.support.classes import CLASSES, draw
from tests.support.engine_helpers import Array
from tests.support.helpers import Case, assert_same_bits, operands_of
from tests.support.roles import LAYOUTS, WRITABLE, unaligned

CHANNELS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 23, 24, 25, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65]
OUTS = {**WRITABLE, "unaligned": unaligned, "contiguous": np.copy}


def problems_of(name: str, seed: int, count: int, most: int = 1_000_000, least: int = 0) -> list[Conv]:
    """Return the problems of one chunk of a class, of so many multiply-adds."""
    rng = np.random.default_rng([61, list(CLASSES).index(name), seed])
    return list(islice(draw(CLASSES[name], rng, most, least), count))


def refuse_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that the NumPy engine computes anything of."""

    def refuse(*_: object) -> None:
        raise AssertionError("the NumPy engine ran")

    monkeypatch.setattr(by_numpy, "execute", refuse)


@dataclass(frozen=True)
class Ran:
    """One problem that the generated engine solved: the call, its canonical result, the exact answer."""

    words: str
    prepared: Prepared
    result: Array
    answer: exact_result.Answer


def lying_anyhow(case: Case, rng: np.random.Generator, kind: Kind) -> tuple[tuple[object, ...], str]:
    """Return operands of a kind of data that lie anyhow in memory, and how they were made."""
    seed = int(rng.integers(1 << 30))
    lies = ["as they come" if rng.random() < 0.4 else str(rng.choice(list(LAYOUTS))) for _ in case.shapes]
    operands = [
        LAYOUTS[how](a) if how in LAYOUTS and a.dtype != np.int32 else a
        for how, a in zip(lies, operands_of(case, kind, seed), strict=True)
    ]
    return tuple(operands), f"operands {lies} seed {seed}"


def run_anyhow(
    case: Case, rng: np.random.Generator, kind: Kind, isa: str, max_error: float = DIRECT, activation: str | None = None
) -> Ran:
    """Run a call on operands that lie anyhow, into a new or a given output, perhaps adding to it."""
    operands, given = lying_anyhow(case, rng, kind)
    out_lies = "new" if rng.random() < 0.4 else str(rng.choice(list(OUTS)))
    accumulate, threads = bool(out_lies != "new" and rng.random() < 0.5), int(rng.choice([1, 1, 2, 3]))
    prepared = prepare(case.op.name, operands, case.attributes, case.dtype, accumulate)
    prepared = prepared.activated(activation).within(max_error)
    problem = prepared.problem
    out, old = None, None
    if out_lies != "new":
        before = np.full(problem.output_shape, np.nan, problem.output_format.dtype)
        if accumulate:
            values = rng.integers(-8, 9, before.shape) if kind == "integers" else rng.standard_normal(before.shape)
            before = values.astype(before.dtype)
            old = prepared.canonical_output(before).copy()
        out = OUTS[out_lies](before)
    words = f"{case} {isa} {given} out {out_lies} accumulate {accumulate} threads {threads}"
    words += f" max_error {max_error} by {problem.algorithm}" * (max_error > DIRECT) + f" {activation}" * bool(
        activation
    )
    choice = engines.choose(problem)
    assert (choice.engine, choice.detail) == ("generated", isa), words
    result = np.ascontiguousarray(prepared.canonical_output(prepared.execute(out, threads)))
    return Ran(words, prepared, result, exact_result.evaluate(problem, prepared.operands, old))


def assert_bounded(one: Ran) -> float:
    """Assert that no element lies beyond the bound of the specified order's height; return the largest share of it.

    An f32 result is the sum itself, so its share is of the sum's bound alone; others count their rounding.
    """
    problem = one.prepared.problem
    if problem.algorithm:
        verdict = compare(one.result, one.answer, problem, 0, bound=bound_by_tiles(one))
        assert verdict.ok, f"{one.words}: {verdict}"
        return verdict.share
    height = engines.height(problem)
    verdict = compare(one.result, one.answer, problem, height)
    assert verdict.ok, f"{one.words}: {verdict}"
    if problem.output_format is not F32:
        return verdict.share
    error = np.abs(one.result.astype(np.float64) - one.answer.value)
    bound = error_bound(height, one.answer.terms, one.answer.magnitude, F32)
    share = float(np.max(error / np.where(error == 0, 1, bound)))
    assert share <= 1, f"{one.words}: {share} of the sum's bound"
    return share


def bound_by_tiles(one: Ran) -> Array:
    """Return the bound of a result of Winograd before its rounding to the output's type, as ``error_bound`` does.

    The old value is added last, so that the sum is rounded once more.
    """
    problem, (operands, answer) = one.prepared.problem, (one.prepared.operands, one.answer)
    how = declared(problem.operator, problem.operand_format)
    with np.errstate(all="ignore"):
        bound = bound_of(answer, replace(problem, accumulate=False), how, operands)
        size = answer.magnitude if problem.activation else np.abs(answer.value)
        return bound + problem.accumulate * F32.unit * (size + bound)


def assert_exact(one: Ran) -> float:
    """Assert the oracle's bits, where every partial sum is an integer that f32 holds; the error is 0.

    Winograd's intermediate values may need more bits; then its bound is not 0.
    """
    problem = one.prepared.problem
    if problem.algorithm and bound_by_tiles(one).any():
        return assert_bounded(one)
    assert one.answer.integral
    assert one.answer.magnitude.max() <= 2**24, one.words
    assert_same_bits(one.result, one.answer.rounded(problem), one.words)
    return 0.0

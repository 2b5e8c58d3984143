"""The sums of TDPBF16PS: the NumPy model on cases computed by hand, and on processors with AMX the instruction."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

import numpy as np
import pytest

from campaigns import amx, amx_speeds
from campaigns.amx import HUGE, NO_AMX, exponents, masks
from campaigns.tdpbf16ps import F32, SIDE, added, by_halves, by_instruction, why_no_amx
from tests.engines.float_environment import DEFAULT, DENORMALS_ARE_ZERO, FLUSH, TO_ZERO, UP, ControlRegister
from tests.support.engine_helpers import HOST

NAN, INF = float("nan"), float("inf")
CASES: dict[str, tuple[list[float], list[float], float, float]] = {  # factors of the terms, C, and the result
    "even chain, then odd chain": ([HUGE, 1, 1, 2, -HUGE, 4, 8, 16], [1] * 8, 32.0, 8 + 1 + 2 + 4 + 16 + 32.0),
    "odd chain hides": ([1, HUGE, 2, 4, 8, -HUGE], [1] * 6, 0.0, 1 + 2 + 8.0),
    "chains hide each other": ([HUGE, -HUGE, 1, 1], [1] * 4, 0.5, 0.5),
    "c last": ([-HUGE, 1, 1, 1], [1] * 4, HUGE, 0.0),
    "rounded to even": ([2.0**12, 0, 1, 0, 1, 0], [2.0**12, 0, 1, 0, 1, 0], 0.0, 2.0**24),
    "no rounding of 16 bits": ([255, 255], [255, 255], 0.0, 130050.0),
    "denormal product": ([2.0**-64, 0], [2.0**-63, 0], 0.0, 0.0),
    "denormal product in a sum": ([2.0**-63, 0, 2.0**-64, 0], [2.0**-63, 0, 2.0**-63, 0], 0.0, 1.5 * 2.0**-126),
    "denormal operand": ([2.0**-127, 0], [2.0**100, 0], 0.0, 0.0),
    "denormal c": ([0, 0], [0, 0], -(2.0**-149), 0.0),
    "denormal sum of chains": ([1.5 * 2.0**-63, 2.0**-63], [2.0**-63, -(2.0**-63)], 0.0, 0.0),
    "denormal total": ([1.5 * 2.0**-63, 0], [-(2.0**-63), 0], 2.0**-126, -0.0),
    "not denormal after rounding": ([2.0**-63, 0, 2.0**-76, 0], [2.0**-63, 0, -(2.0**-75), 0], 0.0, 2.0**-126),
    "denormal after rounding": ([2.0**-63, 0, 2.0**-75, 0], [2.0**-63, 0, -(2.0**-75), 0], 0.0, 0.0),
    "zeros of both signs": ([-1, -1], [0, 0], -0.0, 0.0),
    "overflow": ([2.0**64] * 3 + [0], [2.0**63] * 3 + [0], 0.0, INF),
    "product beyond f32 in a sum": ([2.0**64, 0, 2.0**64, 0], [-(2.0**63), 0, 2.0**64, 0], 0.0, 2.0**127),
    "infinities of both chains": ([INF, INF], [1, -1], 0.0, NAN),
}


def bits(values: object) -> np.ndarray:
    return np.asarray(values, np.float32).view(np.uint32)


def both(rows: list[float], columns: list[float], c: float) -> list[F32]:
    """Return all outputs of the model, and of the instruction if there is AMX."""
    a = np.broadcast_to((bits(rows) >> 16).astype(np.uint16), (1, SIDE, len(rows)))
    b = np.broadcast_to((bits(columns) >> 16).astype(np.uint16)[:, None], (1, len(rows), SIDE))
    given = a, b, np.full((1, SIDE, SIDE), c, np.float32)
    return [by_halves(*given)] if why_no_amx() else [by_halves(*given), by_instruction(*given)]


@pytest.mark.parametrize("name", CASES)
def test_case_computed_by_hand(name: str) -> None:
    rows, columns, c, wanted = CASES[name]
    for found in both(rows, columns, c):
        expected = 0xFFC00000 if np.isnan(wanted) else bits(wanted)
        assert (found.view(np.uint32) == expected).all()


def nan(payload: int) -> float:
    return float(np.array(0x7F800000 | payload << 16, np.uint32).view(np.float32))


def test_nan_of_c_then_even_then_latest() -> None:
    """The NaN of C precedes those of the even chain, then of the odd chain; in a chain, the latest precedes."""
    rows, columns = [nan(0x41), nan(0x42), nan(0x43), nan(0x44)], [nan(0x45)] * 4
    for c, wanted in ((nan(0x46), 0x7FC6), (0.0, 0x7FC3)):
        for found in both(rows, columns, c):
            assert (found.view(np.uint32) == wanted << 16).all()
    for found in both([1, nan(0x42), 1, nan(0x43)], [1, 1, 1, nan(0x44)], 0.0):
        assert (found.view(np.uint32) == 0x7FC30000).all()


def rounded(total: Fraction) -> float:
    """Return a sum rounded to 24 bits, ties to even, or 0 if the rounded sum is denormal."""
    if total == 0:
        return 0.0
    exponent = 0
    while abs(total) * Fraction(2) ** -exponent >= 1 << 24:
        exponent += 1
    while abs(total) * Fraction(2) ** -exponent < 1 << 23:
        exponent -= 1
    nearest = float(round(total * Fraction(2) ** -exponent) * Fraction(2) ** exponent)
    return 0.0 if abs(nearest) < 2.0**-126 else nearest


@pytest.mark.parametrize("low", [-75, -66, -20])
def test_model_has_the_bits_of_rational_sums(low: int) -> None:
    """Exponents near the denormal numbers, and sums that cancel."""
    rng = np.random.default_rng(low + 100)
    x, y = (np.ldexp(rng.integers(-255, 256, 400), rng.integers(low, low + 14, 400)).astype(np.float32) for _ in "xy")
    z = np.where(rng.random(400) < 0.5, -x * y, x).astype(np.float32)
    z = np.where(np.abs(z) < 2.0**-126, np.float32(2.0**-126), z)
    z = (z.view(np.uint32) ^ rng.integers(0, 2, 400).astype(np.uint32)).view(np.float32)
    exact = [Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r)) for p, q, r in zip(x, y, z, strict=True)]
    assert (added(x, y, z) == np.array([rounded(each) for each in exact])).all()


needs_amx = pytest.mark.skipif(bool(why_no_amx()), reason=why_no_amx())


@needs_amx
def test_masks_have_the_bits_of_the_model() -> None:
    for operands in masks():
        assert (by_instruction(*operands) == by_halves(*operands)).all()


@needs_amx
@pytest.mark.parametrize("cancel", [False, True])
def test_random_outputs_have_the_bits_of_the_model(cancel: bool) -> None:
    """Nine ranges of exponents, of 65,536 outputs each; the last range has denormals, infinities and NaN."""
    for operands in islice(exponents(np.random.default_rng(9), cancel), len(amx.RANGES)):
        assert (by_instruction(*operands).view(np.uint32) == by_halves(*operands).view(np.uint32)).all()


@needs_amx
@pytest.mark.parametrize("word", [DEFAULT | UP, DEFAULT | TO_ZERO | FLUSH | DENORMALS_ARE_ZERO])
def test_control_register_has_no_effect(word: int) -> None:
    register = ControlRegister()
    for operands in islice(exponents(np.random.default_rng(10), cancel=True), len(amx.RANGES)):
        wanted = by_halves(*operands)
        register.put(word)
        try:
            found = by_instruction(*operands)
        finally:
            register.put(DEFAULT)
        assert (found.view(np.uint32) == wanted.view(np.uint32)).all()


@needs_amx
@pytest.mark.parametrize(
    ("order", "code"), [("C + (even chain + odd chain)", 0), ("rounded sums of pairs, added to C", 1)]
)
def test_campaign_with_one_order(order: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "ORDERS", {order: amx.ORDERS[order]})
    monkeypatch.setattr(amx, "numbers", masks)
    assert amx.main(["--outputs", "1"]) == code


def test_machine_without_amx_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(amx, "why_no_amx", lambda: "this processor has no amx-tile")
    assert amx.main([]) == NO_AMX
    assert capsys.readouterr().out == "TDPBF16PS cannot run here: this processor has no amx-tile\n"


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_fma_kernels_have_the_bits_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels with one chain per sum have different bits."""
    monkeypatch.setattr(amx_speeds, "CALLS", 1)
    rows = amx_speeds.table()
    for row in rows:
        row.ns()
        assert row.right(), row
    chains = [row for row in rows if getattr(row.one, "order", "") == amx_speeds.CHAIN]
    assert chains
    for row in chains:
        assert (row.c != amx_speeds.modelled(row.a, row.b)).any()

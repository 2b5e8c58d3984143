"""An instruction for pairs is tried before it is used: what has other bits than fused multiply-adds is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from convgrad.cli import info
from convgrad.engines.llvm import isas, tried
from convgrad.engines.llvm.convert import can_round, rounded
from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, MultiplyAdd, high, high_sum, low, low_sum
from convgrad.plan.machine import ISAS, Isa
from tests.support.engine_helpers import HOST, modelled

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")
ROUNDING = [isa for isa in isas.host_isas() if can_round(isa)]


def low_first(f: Function, sums: Value, a: Value, b: Value) -> Value:
    return high_sum(f, low_sum(f, sums, a, b), a, b)


def rounded_once(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """All of a pair in f64, then one rounding."""
    kind = sums.type.replace("float", "double")
    x0, y0, x1, y1, start = (
        f.op(kind, f"fpext {each} to {kind}") for each in (high(f, a), high(f, b), low(f, a), low(f, b), sums)
    )
    total = f.op(kind, f"fadd {start}, {f.op(kind, f'fmul {x0}, {y0.name}').name}")
    total = f.op(kind, f"fadd {total}, {f.op(kind, f'fmul {x1}, {y1.name}').name}")
    return f.op(sums.type, f"fptrunc {total} to {sums.type}")


def apart(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Both products added to one another first."""
    return f.add(sums, low_sum(f, high_sum(f, f.zeros(sums.type), a, b), a, b))


def truncated(f: Function, sums: Value, a: Value, b: Value) -> Value:
    """Rounded before each addition: wrong by the last bit, where anything is."""
    product = f.op(sums.type, f"fmul {high(f, a)}, {high(f, b).name}")
    return low_sum(f, f.op(sums.type, f"fsub {product}, {f.op(sums.type, f'fneg {sums}').name}"), b, b)


@pytest.mark.parametrize("word", ["fused", "flushed"])
def test_what_has_the_bits_is_used(word: str) -> None:
    """The instruction's flushing of denormals is not met: what is tried has none."""
    assert tried.why_not(modelled(ISAS[HOST[-1]], word)) == ""


@pytest.mark.parametrize("word", [low_first, rounded_once, apart, truncated])
def test_what_has_other_bits_is_refused(word: MultiplyAdd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAIR_SUMS, "other", word)
    one = modelled.__wrapped__(ISAS[HOST[-1]], "other")
    assert "differ from those by fused multiply-adds" in tried.why_not.__wrapped__(one)


@pytest.mark.parametrize(("word", "used"), [("fused", True), ("low first", False)])
def test_a_row_is_dropped_where_bits_differ(word: str, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left computes, and ``convgrad info`` says why."""
    monkeypatch.setitem(PAIR_SUMS, "low first", low_first)
    plain = ISAS[HOST[0]]
    one: Isa = modelled.__wrapped__(plain, word)
    monkeypatch.delenv("CONVGRAD_MAX_ISA", raising=False)
    monkeypatch.setattr(isas, "supported", lambda: (one, plain))
    monkeypatch.setattr(isas, "_host_isas", isas._host_isas.__wrapped__)
    assert isas.host_isas() == ((one, plain) if used else (plain,))
    said = info.collect()["bf16"]
    assert ("two terms" in said) == used
    assert ("differ from those by fused multiply-adds" in said) != used


def toward_zero(f: Function, *values: Value) -> Value:
    """The upper halves, as they are."""
    found = [f.op("<32 x i16>", f"bitcast {each} to <32 x i16>") for each in (values[0], values[-1])]
    return f.shuffle(*found, [2 * lane + 1 for lane in range(16 * len(values))])


def exchanged(f: Function, *values: Value) -> Value:
    """The nearest, the first above the second."""
    return rounded(f, *values[::-1])


@pytest.mark.skipif(not ROUNDING, reason="no instruction rounds to bf16 here")
@pytest.mark.parametrize("way", [toward_zero, exchanged])
def test_what_rounds_otherwise_is_refused(way: Callable[..., Value], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried, "rounded", way)
    assert "are not rounded to the nearest bf16" in tried.why_not.__wrapped__(ROUNDING[0])

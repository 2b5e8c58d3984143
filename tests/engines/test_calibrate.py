"""Calibration: it finds the speeds that times come from, keeps them by processor, and changes no bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from campaigns import speeds as campaign
from convgrad.engines.llvm import calibrate, isas, speeds
from convgrad.engines.llvm.calibrate import PROBLEMS, TimedPlans, fitted
from convgrad.host import cache_bytes
from convgrad.notation import problem
from convgrad.plan.choose import predicted_ms
from convgrad.plan.kernels import Nest
from convgrad.plan.machine import ISAS, SPEEDS, Machine
from convgrad.plan.passes import dense_view, plan, plans
from convgrad.plan.recipe import Chosen
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.support.engine_helpers import HOST, empty, made, run_plan
from tests.support.helpers import assert_same_bits

LINES = ("BWD_W f32 NXC mb2ic24ih12oc20oh12kh3ph1", "FWD_D f32 NCX mb2ic24ih12oc20oh12kh3ph1",
         "BWD_D f32 NXC mb2ic24ih12oc20oh6kh3sh2ph1", "FWD_D f32 NCX g12mb2ic24ih12oc24oh12kh3ph1")  # fmt: skip


def invented(seed: int, machine: Machine) -> Machine:
    """A machine whose speeds are up to three times larger or smaller."""
    factors = 3 ** np.random.default_rng(seed).uniform(-1, 1, len(SPEEDS))
    return replace(machine, **{name: getattr(machine, name) * by for name, by in zip(SPEEDS, factors, strict=True)})


def samples(machine: Machine, count: int) -> list[TimedPlans]:
    """The times that up to ``count`` plans of each family would take on a machine."""
    found = []
    for line in PROBLEMS:
        one = problem(line)
        view = dense_view(one)
        chosen = plans(one, view, machine, 1, count)
        found.append(TimedPlans(one, view, 1, chosen, [times(machine, one, view, each) for each in chosen]))
    return found


def times(machine: Machine, one: Problem, view: Nest, chosen: Chosen) -> float:
    return predicted_ms(one, view, machine, chosen) - machine.call_ns / 1e6


@pytest.mark.parametrize("threads", [1, 2])
def test_a_prediction_is_that_of_the_plan(threads: int) -> None:
    machine = Machine(ISAS["avx512"])
    for line in (*PROBLEMS, "BWD_W f32 NXC g8mb4ic64ih14oc64oh14kh3ph1"):
        one = problem(line)
        view = dense_view(one)
        for each in plans(one, view, machine, threads, 2):
            assert predicted_ms(one, view, machine, each) == pytest.approx(each.time_ms, rel=1e-12), line


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(3))
def test_the_speeds_behind_times_are_found(seed: int) -> None:
    old = Machine(ISAS["avx512"], fma_per_ns=100.0)
    real = invented(seed, old)
    given = samples(real, 1)[::2]
    found = fitted(old, given)
    near, far = ([abs(np.log2(times(of, *sample[:2], each) / ms))
                  for sample in given for each, ms in zip(sample.plans, sample.ms, strict=True)]
                 for of in (found, old))  # fmt: skip
    assert np.mean(near) < 0.12 < np.mean(far)


def test_choices_matter_more_than_predictions() -> None:
    """Two plans whose predicted order is wrong: their order is learned, although both predictions become worse."""
    old = Machine(ISAS["avx512"], fma_per_ns=100.0)
    sample = next(sample for sample in samples(old, 1) if len(sample.plans) > 1)
    first, second, *_ = sample.ms
    assert first <= second
    sample = sample._replace(plans=sample.plans[:2], ms=[second * 1.02, second])
    for machine, is_learned in ((old, False), (fitted(old, [sample]), True)):
        predicted = [times(machine, *sample[:2], each) for each in sample.plans]
        assert (predicted[0] > predicted[1]) == is_learned


@pytest.mark.every(2)
@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
@pytest.mark.parametrize("line", LINES)
def test_speeds_change_no_bit(line: str) -> None:
    one, operands = made(line)
    expected = evaluate_in_order(one, operands)
    machine = isas.machine(ISAS[HOST[0]])
    chosen = {plan(one, dense_view(one), invented(seed, machine), 1 + seed % 2) for seed in range(12)}
    for each in chosen:
        assert_same_bits(run_plan(each, one, operands, empty(one)), expected, str(each))


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_campaign_has_other_plans_and_finds_wrong_bits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    computed = campaign._computed

    def wrong(prepared: Any, before: Any, way: campaign.Way) -> Any:
        plan, result = computed(prepared, before, way)
        result.flat[0] += way.name == "made-up 2" and way.threads == 2
        return plan, result

    assert campaign.main(["--problems", "2"]) == 0
    right = capsys.readouterr().out
    assert "2 problems, 0 problems wrong" in right
    assert "different plans under the machines 0" not in right
    monkeypatch.setattr(campaign, "_computed", wrong)
    assert campaign.main(["--first", "1", "--problems", "1"]) == 1
    assert "wrong: python -m campaigns speeds --seed 0 --first 1 --problems 1: " in capsys.readouterr().out


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_speeds_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isa = ISAS[HOST[0]]
    with convgrad.kernel_cache(tmp_path / "kernels"):
        assert speeds.kept(isa) is None
        twos = dict.fromkeys(SPEEDS, 2.0)
        assert speeds.keep(isa, twos) == ""
        assert speeds.speeds_of(isa) == (twos, "calibrated on this machine")
        assert isas.machine.__wrapped__(isa).bytes_per_ns == 2.0
        assert isas.uncalibrated(isa).bytes_per_ns != 2.0
        monkeypatch.setattr(speeds, "cpu_model", lambda: "another processor")
        assert speeds.kept(isa) is None
    with convgrad.kernel_cache(None):
        assert speeds.keep(isa, twos) == "there is no kernel cache"


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_calibration_measures() -> None:
    machine = isas.machine(ISAS[HOST[0]])
    found, ratios = calibrate.calibrated(machine, 2, PROBLEMS[10:12])
    assert ratios
    assert all(after > 0 for _, after in ratios)
    assert found.isa is machine.isa
    assert found.call_ns == machine.call_ns


def test_cache_sizes_are_those_of_linux(tmp_path: Path) -> None:
    described = (("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M"), ("3", "Unified", "unknown"))
    for number, facts in enumerate(described):
        cache = tmp_path / f"index{number}"
        cache.mkdir()
        for name, text in zip(("level", "type", "size"), facts, strict=True):
            (cache / name).write_text(f"{text}\n")
    (tmp_path / "index4").mkdir()
    assert [cache_bytes(level, tmp_path) for level in (1, 2, 3, 4)] == [48 << 10, 2 << 20, 0, 0]
    assert cache_bytes(1, tmp_path / "none") == 0

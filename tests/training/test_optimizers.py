"""Optimizers in Python: their powers do not come from the C library, and their groups stay as the caller gave them."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from convgrad.torch import fingerprint, same_bits
from convgrad.torch.training import numbers
from convgrad.torch.training.numbers import SpecifiedFloat, power

WITH_POWERS = {"Adam", "AdamW", "Adamax", "NAdam", "RAdam", "ASGD"}
WITHOUT = {"SGD", "Adagrad", "Adadelta", "RMSprop", "Rprop"}
OTHERS = {"LBFGS", "Adafactor"}  # need a closure, or two axes


def _trained(optimizer: str, steps: int, **options: Any) -> tuple[str, torch.optim.Optimizer]:
    """Return the hash of a parameter after steps, and the optimizer."""
    x = torch.nn.Parameter(torch.linspace(-1, 1, 50))
    updates = getattr(torch.optim, optimizer)([x], lr=0.01, **options)
    for step in range(steps):
        x.grad = torch.linspace(0.5, 2, 50) * (step + 1)
        updates.step()
    return fingerprint([x]), updates


@pytest.mark.parametrize("name", sorted(WITH_POWERS | WITHOUT))
@pytest.mark.parametrize("foreach", [False, True])
def test_powers_are_specified(name: str, foreach: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with same_bits():
        expected, optimizer = _trained(name, 8, foreach=foreach)
        monkeypatch.setattr(numbers, "power", lambda base, exponent: power(base, exponent) * (1 - 2**-12))
        changed, _ = _trained(name, 8, foreach=foreach)
    of_tensors = name == "ASGD" and foreach  # these powers are operators of the table
    assert (changed != expected) == (name in WITH_POWERS and not of_tensors)
    (group,) = optimizer.param_groups
    assert not [key for key, value in group.items() if type(value) is SpecifiedFloat]
    assert not any(type(number) is SpecifiedFloat for number in group.get("betas", ()))


@pytest.mark.parametrize("name", sorted(WITH_POWERS | WITHOUT | OTHERS))
def test_states_are_saved_and_loaded(name: str) -> None:
    x = torch.nn.Parameter(torch.ones(4, 3))
    optimizer, file = getattr(torch.optim, name)([x], lr=0.1), io.BytesIO()

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        result = (x * x).sum()
        result.backward()
        return result

    with same_bits():
        for _ in range(3):
            optimizer.step(loss)
        torch.save(optimizer.state_dict(), file)
    file.seek(0)
    assert fingerprint(torch.load(file, weights_only=True)) == fingerprint(optimizer.state_dict())


def test_unfused_steps_have_the_bits_of_fused_ones() -> None:
    assert any(power(0.9, step) != 0.9**step for step in range(1, 200))
    with same_bits():
        plain, fused = (_trained("AdamW", 200, fused=fused)[0] for fused in (False, True))
    assert plain == fused


def test_groups_are_restored_after_a_step_that_raises() -> None:
    x = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([x], lr=0.5, betas=(0.5, 0.75))
    before = dict(optimizer.param_groups[0])

    def loss() -> float:
        assert type(optimizer.param_groups[0]["lr"]) is SpecifiedFloat
        raise KeyError

    with same_bits(), pytest.raises(KeyError):
        optimizer.step(loss)
    after = optimizer.param_groups[0]
    assert all(after[key] is value for key, value in before.items())


def test_changes_in_a_step_stay() -> None:
    x = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([x], lr=0.5)

    def loss() -> float:
        optimizer.param_groups[0]["lr"] = 0.25
        return 0.0

    with same_bits():
        optimizer.step(loss)
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_outside_of_the_block_nothing_changes() -> None:
    x = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([x], lr=0.5)
    with same_bits():
        pass
    optimizer.step(lambda: float(type(optimizer.param_groups[0]["lr"]) is not float))
    assert type(optimizer.param_groups[0]["lr"]) is float


@pytest.mark.parametrize(("base", "exponent"), [(0.9, 3), (0.999, 100_000), (2.0, 0.5), (3.0, 0.75), (2.0, -2.0)])
def test_powers_are_near_those_of_the_c_library(base: float, exponent: float) -> None:
    number = SpecifiedFloat(base)
    assert number**exponent == pytest.approx(float(base) ** exponent, rel=1e-10)
    assert float(base) ** SpecifiedFloat(exponent) == number**exponent
    assert type(1 - number**2) is type(-(2 / number)) is SpecifiedFloat
    assert torch.equal(number * torch.ones(2), torch.ones(2) * base)

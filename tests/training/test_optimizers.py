"""Optimizers in Python: their powers do not come from the C library, and their groups stay as the caller gave them."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch.optim import optimizer

from convgrad.torch import fingerprint, same_bits
from convgrad.torch.training import hooks, numbers, optimizers
from convgrad.torch.training.numbers import SpecifiedFloat, power
from convgrad.torch.training.watch import Watcher

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
        for module in (numbers, optimizers):
            monkeypatch.setattr(module, "power", lambda base, exponent: power(base, exponent) * (1 - 2**-12))
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


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "SGD": [
        {"momentum": momentum, "dampening": dampening, "weight_decay": decay, "nesterov": nesterov}
        for momentum, dampening, nesterov in ((0, 0, False), (0.9, 0, False), (0.9, 0.25, False), (0.9, 0, True))
        for decay in (0, 0.125)
    ],
    "Adam": [
        {"betas": betas, "weight_decay": decay, "amsgrad": amsgrad}
        for betas in ((0.9, 0.999), (0.25, 0.5))
        for decay in (0, 0.125)
        for amsgrad in (False, True)
    ],
}
OPTIONS["AdamW"] = OPTIONS["Adam"]


def _of_network(name: str, options: dict[str, Any]) -> tuple[str, str]:
    """Return the hashes of parameters and of an optimizer's state after steps, some of which lack gradients."""
    torch.manual_seed(0)
    shapes = (3,), (4, 5), (), (2, 3, 4, 5), (0,), (20_000,)
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    parameters.append(torch.nn.Parameter(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)))
    rule = getattr(torch.optim, name)(parameters, lr=0.01, **options)
    for number in range(4):
        for at, parameter in enumerate(parameters):
            is_first = number == 0 and at == 1
            parameter.grad = None if is_first or number == 3 - at else torch.randn_like(parameter)
        parameters[3].grad = torch.randn(5, 4, 3, 2).permute(3, 2, 1, 0)  # with other strides than the parameter
        rule.step()
    return fingerprint(parameters), fingerprint(rule.state_dict()["state"])


@pytest.mark.every(2)
@pytest.mark.parametrize("more", [{}, {"foreach": True}, {"maximize": True}], ids=str)
@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name in OPTIONS for options in OPTIONS[name]], ids=str
)
def test_fused_steps_have_the_bits_of_unfused_ones(
    name: str, options: dict[str, Any], more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[str]()
    see = Watcher(lambda operator, *_: calls.append(operator))
    with same_bits():
        with see:
            found = _of_network(name, options | more)
        assert any("_fused_" in call for call in calls)
        monkeypatch.setattr(hooks, "has_bits_of_fused_step", lambda *_: False)
        assert _of_network(name, options | more) == found
        if more != {"foreach": True}:  # a fused SGD of the caller needs momentums for all parameters, or for none
            assert _of_network(name, options | more | {"fused": name != "SGD"}) == found


class Wrapped(torch.Tensor):
    """A tensor whose operators a user may have defined one by one."""


UNFUSED: dict[str, dict[str, Any]] = {
    "rates that are tensors": {"lr": torch.tensor(0.5)},
    "16 bits": {"dtype": torch.bfloat16},
    "f64": {"dtype": torch.float64},
    "capturable": {"capturable": True},
    "differentiable": {"differentiable": True},
    "a number beyond f32": {"eps": 1e39},
    "a sparse gradient": {"gradient": torch.ones(3).to_sparse()},
    "a subclass of tensors": {"gradient": torch.ones(3).as_subclass(Wrapped)},
    "a state in 16 bits": {"state": torch.bfloat16},
    "a state in f64": {"state": torch.float64},
}


@pytest.mark.parametrize("name", UNFUSED)
def test_other_steps_are_not_fused(name: str) -> None:
    case = dict(UNFUSED[name])
    dtype, of_state = case.pop("dtype", torch.float32), case.pop("state", None)
    x = torch.nn.Parameter(torch.ones(3, dtype=dtype))
    x.grad = case.pop("gradient", torch.ones(3, dtype=dtype))
    rule = torch.optim.Adam([x], **{"lr": 0.5, **case})
    if of_state is not None:
        rule.step()
        rule.state[x]["exp_avg_sq"] = rule.state[x]["exp_avg_sq"].to(of_state)
    assert not hooks.has_bits_of_fused_step(rule, rule.param_groups[0])


@pytest.mark.parametrize("of_class", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_hooks_of_the_user_see_the_group_as_it_is(after: bool, of_class: bool) -> None:
    x = torch.nn.Parameter(torch.ones(3))
    x.grad, seen = torch.ones(3), list[object]()
    rule = torch.optim.SGD([x], lr=0.5)
    kind = "post" if after else "pre"
    register = (
        getattr(optimizer, f"register_optimizer_step_{kind}_hook")
        if of_class
        else (getattr(rule, f"register_step_{kind}_hook"))
    )
    hook = register(lambda rule, *_: seen.append((rule.param_groups[0]["fused"], rule.param_groups[0]["foreach"])))
    try:
        with same_bits():
            rule.step()
    finally:
        hook.remove()
    assert seen == [(None, None)]
    assert x.tolist() == [0.5] * 3


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_closures_see_the_group_as_it_is(kind: Any) -> None:
    x, seen = torch.nn.Parameter(torch.ones(3)), list[object]()
    rule = kind([x], lr=0.5)

    def loss(fails: bool) -> torch.Tensor:
        seen.append(rule.param_groups[0]["fused"])
        rule.zero_grad()
        result = (x * x).sum()
        result.backward()
        if fails:
            raise KeyError
        return result

    with same_bits():
        assert rule.step(lambda: loss(False)).item() == 3
        rule.step(closure=lambda: loss(False))
        with pytest.raises(KeyError):
            rule.step(lambda: loss(True))
        seen.append(rule.param_groups[0]["fused"])
    assert seen == [None] * 4


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_a_graph_knows_that_a_step_changed_its_tensors(kind: Any) -> None:
    x = torch.nn.Parameter(torch.ones(3))
    rule = kind([x], lr=0.5)
    with same_bits():
        for _ in range(2):
            loss = (x * x).sum()
            x.grad = torch.ones(3)
            rule.step()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        version = rule.state[x]["step"]._version if rule.state[x] else None
    assert version is None or version >= 2


@pytest.mark.parametrize("count", [2, 9])
def test_a_list_may_become_infinite_but_not_be_expanded(count: int) -> None:
    tensors = [torch.ones(3), *[torch.ones(()) for _ in range(count - 1)]]
    with same_bits():
        versions = [one._version for one in tensors]
        torch._foreach_add_(tensors, 1e39)
        assert all(one._version > version for one, version in zip(tensors, versions, strict=True))
        with pytest.raises(RuntimeError, match="single memory location"):
            torch._foreach_add_([*tensors[1:], torch.ones(1).expand(3)], 1.0)
    assert tensors[0].tolist() == [float("inf")] * 3


def test_a_refused_list_changes_no_tensor() -> None:
    parameters, gradients = [torch.ones(3), torch.ones(3)], [torch.ones(3), torch.ones(3, dtype=torch.bfloat16)]
    options = {"weight_decay": 0.0, "momentum": 0.0, "lr": 0.5, "dampening": 0.0, "nesterov": False, "maximize": False}
    with same_bits(), pytest.raises(RuntimeError, match=r"expected torch\.float32"):
        torch._fused_sgd_(parameters, gradients, [], is_first_step=False, **options)
    assert torch.equal(torch.stack(parameters), torch.ones(2, 3))


def test_steps_may_have_fractions() -> None:
    def trained() -> str:
        x = torch.nn.Parameter(torch.ones(3))
        x.grad = torch.ones(3)
        rule = torch.optim.Adam([x], lr=0.5)
        rule.step()
        rule.state[x]["step"] += 0.5
        rule.step()
        return fingerprint([x])

    with same_bits(), pytest.MonkeyPatch.context() as patch:
        found = trained()
        patch.setattr(hooks, "has_bits_of_fused_step", lambda *_: False)
        assert found == trained()


def test_a_step_is_fused_if_all_momentums_are_new_or_none_is() -> None:
    x, y = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    rule = torch.optim.SGD([x, y], lr=0.5, momentum=0.5)
    with same_bits():
        x.grad = torch.ones(3)
        rule.step()
        y.grad = torch.ones(3)
        assert not hooks.has_bits_of_fused_step(rule, rule.param_groups[0])
        rule.step()
    assert hooks.has_bits_of_fused_step(rule, rule.param_groups[0])
    assert (x.tolist(), y.tolist()) == ([-0.25] * 3, [0.5] * 3)


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_the_types_of_a_state_are_those_of_pytorch(default: torch.dtype) -> None:
    def types() -> list[torch.dtype]:
        x = torch.nn.Parameter(torch.ones(3, dtype=torch.float32))
        x.grad = torch.ones(3, dtype=torch.float32)
        rule = torch.optim.Adam([x])
        rule.step()
        return [value.dtype for value in rule.state[x].values()]

    torch.set_default_dtype(default)
    try:
        with same_bits():
            found = types()
        assert found == types()
    finally:
        torch.set_default_dtype(torch.float32)


def test_groups_are_restored_after_a_step_that_raises() -> None:
    x = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.NAdam([x], lr=0.5, betas=(0.5, 0.75))
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

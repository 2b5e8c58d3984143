"""The report of a model: short whatever the model, complete on request; its training steps leave no trace."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.places import BENCHMARKS, DOCS

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import convgrad  # noqa: E402
import convgrad.torch as ct  # noqa: E402
from convgrad.errors import InvalidDataTypeError  # noqa: E402
from convgrad.torch import varying  # noqa: E402
from convgrad.torch.kernels import timed  # noqa: E402
from convgrad.torch.steps import Step, Steps  # noqa: E402

MEASURED = BENCHMARKS / "results" / "torch_varies.csv"
ANOTHER = BENCHMARKS / "results" / "torch_varies_zen5.csv"


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """PyTorch's threads wait for one another where cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# -- what was measured of PyTorch's modules ------------------------------------------------------------------------


def test_classes_are_those_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    assert __import__("torch_varies").classes([MEASURED, ANOTHER]) == Path(varying.__file__).read_text(encoding="utf-8")


def test_page_has_the_table_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    assert __import__("torch_varies").table(MEASURED) in (DOCS / "design" / "torch.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.BatchNorm1d(256), (784, 256)),
        (lambda: nn.BatchNorm2d(256), (2, 256, 1, 1)),
        (nn.SiLU, (4, 32, 32, 32)),
    ],
)
def test_layers_that_vary_with_threads_are_said_to(layer: Any, shape: tuple[int, ...]) -> None:
    module = layer()
    given = torch.from_numpy(np.random.default_rng(0).standard_normal(shape, np.float32))
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        leaf = given.clone().requires_grad_()
        output = module(leaf)
        output.backward(given)
        results.append((output.detach(), leaf.grad))
    same = all(torch.equal(a, b) for one in results[1:] for a, b in zip(results[0], one, strict=True))
    assert same or "threads" in varying.VARIES_WITH[type(module).__name__]


def test_batch_norms_vary_with_the_memory_format() -> None:
    assert "memory format" in varying.VARIES_WITH["BatchNorm2d"]


# -- as text -------------------------------------------------------------------------------------------------------


def many(kinds: int, names: int = 40) -> dict[str, str]:
    return {f"{kind}.{'block.' * 20}{at}": f"Kind{kind}" for kind in range(kinds) for at in range(names)}


def test_operators_of_a_step_have_places_and_cures() -> None:
    model = ct.reproducible(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)))
    rule, x = torch.optim.Adam(model.parameters()), torch.ones(2, 1, 5, 5)

    def step() -> None:
        torch.lgamma(model(x)).square().mean().backward()
        rule.step()

    whole = ct.report(model, step=step)
    *_, title, first, second, third, _, _, _ = str(whole).splitlines()
    assert title.startswith("operators of the step that may vary: ")
    assert all(line.endswith(".") and "test_report.py:" in line for line in (first, second, third))
    assert len(whole.details().splitlines()) > len(str(whole).splitlines())
    lines = whole.details().splitlines()
    (line,) = [line for line in lines if " aten::lgamma:" in line]
    (norm,) = [line for line in lines if " aten::native_batch_norm:" in line]
    assert line.endswith(". Use another operator, because convgrad has no definition of this one.")
    assert "1 (BatchNorm2d)" in norm
    assert norm.endswith(". Use convgrad.torch.same_bits().")
    with ct.same_bits(strict=False):
        inside = ct.report(model, step=step)
    assert [line.split(":")[2] for line in inside.operators.cures()] == ["lgamma", "digamma"]


def test_any_report_has_at_most_25_lines() -> None:
    step = Step(1.0, (), ())
    with timed() as calls:
        ct.conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 3, 3))
    step = Step(1.0, tuple(calls), ())
    settings = varying.DEPENDENCES
    report = ct.Report(
        many(30),
        many(31),
        {name: (kind, frozenset(settings[: len(name) % 3 + 1])) for name, kind in many(32).items()},
        many(33),
        many(34),
        Steps(step, {"model and inputs in channels_last": step, "max_error=64": step}),
    )
    lines = str(report).splitlines()
    assert len(lines) == 25
    assert max(map(len, lines)) < 300
    details = report.details()
    for name in many(34):
        assert f" {name}\n" in details, name


def test_a_model_without_convolutions() -> None:
    """The report of a model that has none says so, without another warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = ct.report(nn.Sequential(nn.ReLU()), torch.ones(3, requires_grad=True))
    lines = str(report).splitlines()
    assert lines[0] == "the model has no convolutions: convgrad computes nothing of it"
    assert lines[-1] == "  convgrad computes no layer of this step; if it has convolutions, call reproducible(model)"


def test_a_forward_set_on_a_module_is_not_measured() -> None:
    layer = nn.Linear(2, 2)
    layer.forward = lambda x: x
    assert ct.report(layer).unknown == {"": "Linear"}
    assert "Linear: 1 module (the model)" in str(ct.report(layer))


# -- training steps ------------------------------------------------------------------------------------------------


class Restless(nn.Module):
    """A model that changes all it can in a forward, with inputs and outputs in containers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = ct.reproducible(nn.Conv2d(3, 4, 3))
        self.norm, self.frozen = nn.BatchNorm2d(4), nn.BatchNorm2d(4).eval()
        self.frozen.weight.requires_grad_(False)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("removed", torch.zeros(()))
        self.fails = False

    def forward(self, given: dict[str, Any], factor: float) -> Any:
        made = self.frozen(self.norm(self.conv(given["image"].mul_(factor) + given["leaf"])))
        self.seen = self.seen + torch.rand(()) + random.random() + np.random.rand()  # noqa: NPY002
        self.norm.eval()
        self.norm.weight = nn.Parameter(self.norm.weight.detach() / 2)
        self.conv.bias.requires_grad_(False)
        self.register_buffer("added", self.seen)
        self._buffers.pop("removed", None)
        if self.fails:
            raise ArithmeticError
        return {"made": made, "more": (made.mean((2, 3)), "word", torch.arange(3))}


def state(model: nn.Module) -> tuple[Any, ...]:
    """Return all that a report must leave as it was."""
    held = [(name, id(one), one.data_ptr(), one.stride()) for name, one in model.state_dict(keep_vars=True).items()]
    gradients = [
        (id(one.grad), None if one.grad is None else one.grad.tolist(), one.requires_grad) for one in model.parameters()
    ]
    seeds = torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())  # noqa: NPY002
    return ct.fingerprint(model), held, gradients, [one.training for one in model.modules()], seeds


@pytest.mark.parametrize("fails", [False, True])
def test_steps_leave_a_model_as_it_was(fails: bool) -> None:
    model, image, leaf = Restless(), torch.randn(2, 3, 9, 9), torch.zeros(9, requires_grad=True)
    model({"image": image.clone(), "leaf": leaf.detach()}, 2.0)["made"].sum().backward()
    model.conv.bias.grad = None
    model.conv.bias.requires_grad_()
    del model.added
    model.register_buffer("removed", torch.zeros(()))
    model.train().frozen.eval()
    model.fails = fails
    before, given = state(model), image.clone()
    if fails:
        with pytest.raises(ArithmeticError):
            ct.report(model, {"image": image, "leaf": leaf}, 2.0)
    else:
        steps = ct.report(model, {"image": image, "leaf": leaf}, 2.0).steps
        assert [call.problem.operator for call in steps.as_is.forward] == ["Convolution"]
    assert state(model) == before
    assert torch.equal(image, given)
    assert leaf.grad is None


def test_steps_have_times_formats_and_algorithms() -> None:
    model = ct.reproducible(nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1, bias=False)))
    report = ct.report(model, torch.randn(2, 3, 28, 28))
    steps = report.steps
    assert len(steps.as_is.forward) == 2
    assert {call.problem.solves_for for call in steps.as_is.backward} == {"src", "weights", "bias"}
    assert 0 < steps.as_is.kernel_seconds < steps.as_is.seconds
    last = steps.others["model and inputs in channels_last"]
    assert [call.channels_last for call in (*steps.as_is.forward, *last.forward)] == [False, False, True, True]
    assert (steps.as_is.tiled, steps.others["max_error=64"].tiled) == (0, 1)
    text = str(report)
    for words in (
        "  2 layers: 2 direct; inputs: 2 contiguous\n",
        "  model and inputs in channels_last: a step takes ",
        "  max_error=64 admits Winograd tiles for 1 of 2 layers: a step takes ",
    ):
        assert words in text, words


def test_steps_try_what_is_not_so_yet() -> None:
    model = ct.reproducible(nn.Conv2d(3, 4, 3)).to(memory_format=torch.channels_last)
    with convgrad.max_error(64):
        steps = ct.report(model, torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last)).steps
    assert list(steps.others) == ["model and inputs contiguous"]
    assert ct.report(ct.reproducible(nn.Conv1d(3, 4, 3)), torch.randn(2, 3, 9)).steps.others.keys() == {"max_error=64"}


def test_a_format_that_a_model_refuses_is_said() -> None:
    class Flat(nn.Conv2d):
        def __call__(self, x: Any) -> Any:
            return super().__call__(x).view(2, -1)

    report = ct.report(ct.reproducible(nn.Sequential(Flat(1, 2, 2))), torch.ones(2, 1, 4, 4))
    assert report.steps.others["model and inputs in channels_last"].startswith("RuntimeError: view size is not")
    assert "in channels_last: the model raises RuntimeError: view size" in str(report)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.LazyConv2d(2, 3), "weight has no shape before the model's first call"),
        (nn.Flatten(), "at least one floating-point output that requires a gradient; got Tensor without"),
    ],
)
def test_steps_that_cannot_be_are_refused(model: nn.Module, words: str) -> None:
    with pytest.raises(InvalidDataTypeError, match=f"^report: .*{words}"):
        ct.report(model, torch.ones(1, 2, 4, 4))


def test_calls_are_collected_in_their_context_only() -> None:
    given, weight = torch.ones(1, 1, 3, 3), torch.ones(1, 1, 3, 3)
    with timed() as outer:
        ct.conv2d(given, weight)
        with timed() as inner:
            ct.conv2d(given, weight)
            ct.conv2d(given, weight)
    ct.conv2d(given, weight)
    assert (len(outer), len(inner)) == (1, 2)
    assert all(call.seconds > 0 for call in (*outer, *inner))

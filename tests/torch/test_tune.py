"""A model whose convolutions choose plans by measurement, in the forward pass and in both gradients: the same bits."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.engine_helpers import HOST

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import convgrad  # noqa: E402
import convgrad.torch as ct  # noqa: E402
from convgrad.engines.llvm import engine, execute, tune  # noqa: E402
from tests.torch.layers import bits  # noqa: E402

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")
X = torch.randn(2, 8, 12, 12)


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Measure few plans in few rounds, and keep results in a new directory; return what the plans solve for."""
    solved: list[str] = []
    times = tune.measured

    @functools.wraps(times)
    def counting(problem: Any, *given: Any) -> list[float]:
        solved.append(problem.solves_for)
        return times(problem, *given)

    monkeypatch.setattr(tune, "measured", counting)
    monkeypatch.setattr(tune, "MAX_PLANS", 3)
    monkeypatch.setattr(tune, "ROUNDS_S", 0.0)
    monkeypatch.setattr(tune, "SAMPLE_S", 1e-4)
    # If the cores are busy, calls use one thread, and a plan for one thread is measured, too.
    monkeypatch.setattr(engine, "helped", lambda threads, time_ms: True)
    tune.fastest.cache_clear()
    execute._kept.clear()
    with convgrad.kernel_cache(tmp_path):
        yield solved
    tune.fastest.cache_clear()


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(16, 5, 3, stride=2))


def step(model: Any) -> list[bytes]:
    x = X.clone().requires_grad_()
    result = model(x)
    gradients = torch.autograd.grad(result.square().sum(), (x, *model.parameters()))
    return [bits(t) for t in (result, *gradients)]


def test_all_passes_are_measured_once_and_keep_their_bits(measured: list[str]) -> None:
    expected = step(ct.reproducible(model()))
    assert measured == []
    tuned = ct.reproducible(model(), tune=True)
    assert step(tuned) == expected
    assert sorted(measured) == ["bias", "dst", "dst", "src", "src", "weights", "weights"]
    assert tune.fastest.cache_info().currsize == len(measured)
    assert step(tuned) == expected
    assert len(measured) == 7


def test_the_backward_pass_on_another_thread_is_measured(measured: list[str]) -> None:
    expected, tuned, found = step(ct.reproducible(model())), ct.reproducible(model(), tune=True), []
    x = X.clone().requires_grad_()
    result = tuned(x)
    del measured[:]

    def backward() -> None:
        found.extend(torch.autograd.grad(result.square().sum(), (x, *tuned.parameters())))

    thread = Thread(target=backward)
    thread.start()
    thread.join()
    assert [bits(t) for t in (result, *found)] == expected
    assert {"src", "weights"} <= set(measured)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_models_are_measured(backend: str, measured: list[str]) -> None:
    torch._dynamo.reset()
    expected, tuned = step(ct.reproducible(model())), ct.reproducible(model(), tune=True)
    compiled = torch.compile(tuned, fullgraph=True, backend=backend)
    assert step(compiled) == expected
    assert {"dst", "src", "weights"} <= set(measured)
    torch._dynamo.reset()


def test_copies_keep_the_setting(measured: list[str]) -> None:
    tuned = ct.reproducible(model(), tune=True)
    loaded = ct.reproducible(model(), tune=True)
    loaded.load_state_dict(tuned.state_dict())
    for other in (copy.deepcopy(tuned), pickle.loads(pickle.dumps(tuned)), loaded, ct.reproducible(tuned)):
        assert [getattr(layer, "convgrad_tune", None) for layer in other] == [True, None, True]
        assert repr(other[0]).endswith("padding=(1, 1), tune=True)")
    step(copy.deepcopy(tuned))
    assert measured


def test_the_change_is_undone(measured: list[str]) -> None:
    for other in (ct.reproducible(ct.reproducible(model(), tune=True), tune=False),
                  ct.reproducible(ct.original(ct.reproducible(model(), tune=True)))):  # fmt: skip
        assert "tune" not in repr(other)
        step(other)
    assert measured == []


def test_refuses_a_number() -> None:
    one = model()
    with pytest.raises(convgrad.InvalidAttributeError, match=r"^reproducible: tune must be True or False; got 1$"):
        ct.reproducible(one, tune=1)
    assert type(one[0]) is nn.Conv2d

"""`audit`, `record` and `first_difference`: operators by group, with their places."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import convgrad.torch as ct
from convgrad.errors import FileError, InvalidDataTypeError, UnsupportedError
from convgrad.torch.training.groups import group_of


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 36, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.norm(self.conv(x))).flatten(1))


def step(model: nn.Module, activation: object = None) -> object:
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x, labels = torch.rand(4, 3, 8, 8), torch.arange(4)

    def run() -> None:
        y = model(x)
        y = y if activation is None else activation(y)
        F.cross_entropy(y, labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return run


def test_nothing_varies_in_a_step() -> None:
    with ct.same_bits():
        found = ct.audit(step(Net()))
    assert found
    assert not found.varying
    assert {"aten::convolution", "aten::native_batch_norm", "aten::addmm", "aten::_log_softmax"} <= set(found.ours)
    assert "conv (Conv2d), test_audit.py" in next(iter(found.ours["aten::convolution"]))
    assert "aten::relu" in found.fixed


def test_planted_logit_is_named() -> None:
    with ct.same_bits():
        found = ct.audit(step(Net(), torch.lgamma))
    assert not found
    assert set(found.varying) == {"aten::lgamma", "aten::digamma"}
    text = str(found)
    assert text.splitlines()[0] == "may vary with threads, instruction set or memory format: 2 operators, 2 calls"
    assert "backward of Lgamma, test_audit.py" in text


def test_outside_the_context_the_table_says_so() -> None:
    found = ct.audit(step(Net()))
    assert not found
    assert "may vary here, because PyTorch computed them outside same_bits(): " in str(found)
    assert ". Use convgrad.torch.same_bits()." in str(found)


def test_own_operators_never_vary_outside_the_context() -> None:
    layer, x = ct.reproducible(nn.Conv2d(2, 3, 3)), torch.rand(1, 2, 5, 5)
    found = ct.audit(lambda: layer(x))
    assert set(found.ours) == {"convgrad::forward"}
    assert found
    assert not list(found.cures())
    assert "computed by convgrad, in one order: 1 operator, 1 call" in str(found)
    assert "operators of the step that may vary: 0" in str(ct.report(layer, step=lambda: layer(x)))


def test_types_and_layouts_without_a_row_may_vary() -> None:
    found = ct.audit(
        lambda: (torch.ones(3, dtype=torch.float64).sum(), torch.ones(2, 2).to_sparse() @ torch.ones(2, 2))
    )
    assert {"aten::sum", "aten::mm", "aten::_to_sparse"} & set(found.varying) >= {"aten::sum"}


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("aten::add_.Tensor", "ours"), ("aten::_foreach_lerp_.Scalar", "ours"), ("aten::_foreach_exp", "ours"),
        ("aten::_foreach_erfc", "may vary"), ("aten::_foreach_mul_.Tensor", "fixed"), ("aten::view", "fixed"),
        ("aten::lgamma", "may vary"), ("other::operator", "may vary"), ("c10d::allreduce_", "may vary"),
        ("c10d::allgather_", "fixed"), ("convgrad::forward", "fixed"),
    ],
)  # fmt: skip
def test_groups(name: str, group: str) -> None:
    assert group_of(name) == group


UNSERVED: dict[str, Callable[[torch.Tensor], object]] = {  # operators that a row serves only for other arguments
    "aten::pow.Tensor_Scalar": lambda x: x.double() ** 0.3,
    "aten::pow_.Scalar": lambda x: x.double().pow_(0.3),
    "aten::linalg_vector_norm": lambda x: torch.linalg.vector_norm(x, 3),
    "aten::sum.dim_IntList": lambda x: x.double().sum(0),
}


CURES = {
    "aten::linalg_vector_norm": "orders 1, 2 and infinity; got 3.*, at .*Use one of these orders",
}


@pytest.mark.parametrize("name", UNSERVED)
def test_arguments_that_no_row_serves_may_vary(name: str) -> None:
    """Inside the context, the audit names exactly the operators that a strict block refuses."""
    x = torch.rand(2, 3) + 1
    with ct.same_bits():
        found = ct.audit(lambda: UNSERVED[name](x))
        assert list(found.varying) == [name]
        assert "Pass arguments that convgrad computes" in str(found)
        assert ct.audit(lambda: (x**2, torch.linalg.vector_norm(x)))
        with pytest.raises(UnsupportedError, match=rf"{CURES.get(name, 'Use tensors of f32')}; or pass strict=False"):
            UNSERVED[name](x)


def test_sums_of_integers_as_floats_may_vary_outside_the_context() -> None:
    for function in (torch.sum, torch.mean):
        found = ct.audit(lambda function=function: function(torch.tensor([1, 2]), dtype=torch.float32))
        assert not found
        assert list(found.ours) == [f"aten::{function.__name__}"]


def test_audit_needs_a_function() -> None:
    for function in (ct.audit, ct.record):
        with pytest.raises(InvalidDataTypeError, match="step must be a function without arguments; got NoneType"):
            function(None)  # type: ignore[arg-type]


def test_modules_of_other_threads() -> None:
    """A module whose call began before the audit ends in it."""
    begun, audited = Event(), Event()

    class Waiting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            begun.set()
            assert audited.wait(10)
            return x

    module = Waiting()
    module.register_forward_hook(lambda *_: None)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(module, torch.ones(1))

        def step() -> None:
            audited.set()
            call.result()

        assert begun.wait(10)
        ct.audit(step)


@pytest.mark.parametrize("form", ["fused", "foreach"])
def test_first_difference_of_optimizers(form: str) -> None:
    """Their operators return nothing, and change their arguments."""

    def step(rate: float) -> None:
        parameter = torch.nn.Parameter(torch.ones(4))
        parameter.grad = torch.ones(4)
        torch.optim.SGD([parameter], lr=rate, **{form: True}).step()

    runs = [ct.record(lambda rate=rate: step(rate)) for rate in (0.5, 0.5, 0.25)]
    assert ct.first_difference(*runs[:2]) is None
    found = ct.first_difference(*runs[1:])
    assert found is not None
    assert found.right is not None
    assert found.right.operator.startswith(f"aten::_{form}_")


def test_recorded_tensors_can_be_resized() -> None:
    """The new elements are not written yet, so they are not recorded."""

    def step() -> torch.Tensor:
        return torch.ones(2).resize_(4000).fill_(1.0)

    assert [call.operator for call in ct.record(step).calls] == ["aten::ones", "aten::fill_.Scalar"]


def test_first_difference_names_module_and_operator(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net().eval()
    x = torch.rand(4, 3, 8, 8)
    with torch.no_grad():
        before = ct.record(lambda: model(x))
        assert ct.first_difference(before, ct.record(lambda: model(x))) is None
        model.norm.weight[1] += 2.0**-20
        after = ct.record(lambda: model(x))
    found = ct.first_difference(before, after)
    assert found is not None
    assert found.left is not None
    assert found.left.operator == "aten::native_batch_norm"
    assert found.left.place.startswith("norm (BatchNorm2d)")
    before.save(tmp_path / "run.jsonl")
    assert ct.first_difference(tmp_path / "run.jsonl", after) == found
    (tmp_path / "bad.jsonl").write_text("{}")
    for path in ("bad.jsonl", "none.jsonl"):
        with pytest.raises(FileError, match=r"must be a file of Run\.save"):
            ct.first_difference(tmp_path / path, after)


def test_record_hashes_what_has_bytes() -> None:
    """A batch of one, infinite scores, and tensors on the meta device are parts of usual steps."""
    scores = torch.tensor([[0.5, 2.0, -1.0]])
    steps: dict[str, Callable[[], object]] = {
        "aten::mul.Tensor": lambda: scores[:, 0] * 2,
        "aten::masked_fill.Scalar": lambda: scores.masked_fill(scores < 0, -torch.inf),
        "aten::add.Tensor": lambda: (torch.ones(2, device="meta") + 1, scores + 1),
    }
    for operator, step in steps.items():
        assert [call.operator for call in ct.record(step).calls if call.operator == operator] == [operator]
    first, second = (ct.record(lambda x=x: x[:, 1] * 2) for x in (scores, scores + 1))
    assert ct.first_difference(first, second) is not None


def test_first_difference_of_other_lengths() -> None:
    x = torch.ones(3)
    left, right = ct.record(lambda: x + 1), ct.record(lambda: (x + 1) * 2)
    assert str(ct.first_difference(left, right)).startswith("one run ends before call 1: aten::mul.Tensor at ")
    assert "in one run, and aten::mul.Tensor" in str(ct.first_difference(left, ct.record(lambda: x * 2)))


def test_arithmetic_of_complex_tensors_may_vary() -> None:
    with ct.same_bits():
        found = ct.audit(lambda: (torch.ones(3, dtype=torch.complex64) * 2, torch.ones(3) * 2, torch.arange(3).exp()))
    assert list(found.varying) == ["aten::mul.Tensor"]
    assert "aten::mul.Tensor" in found.fixed
    assert "aten::exp" in found.ours


def test_a_run_is_printed_as_the_number_of_its_calls() -> None:
    assert str(ct.record(lambda: torch.ones(3) * 2)) == "a run of 2 calls"

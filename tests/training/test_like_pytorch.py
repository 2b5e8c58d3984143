"""Types, shapes, strides and errors inside `same_bits` are those of PyTorch; contexts leave nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import convgrad.torch as ct
from convgrad.errors import InvalidAttributeError, UnsupportedError
from convgrad.torch import same_bits
from convgrad.torch.training import context
from convgrad.torch.training.row import SUMMED
from tests.training.row_cases import CASES as OPERATORS
from tests.training.row_cases import drawing, operator

pytestmark = pytest.mark.usefixtures("installed")
F64, BF16 = torch.float64, torch.bfloat16
Call = Callable[[], Any]


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape).to(dtype)


def last(*shape: int) -> torch.Tensor:
    return x(*shape).to(memory_format=torch.channels_last)


def call_copies(operator: Any, arguments: Any, options: dict[str, Any]) -> Any:
    return operator(*deepcopy(arguments), **deepcopy(options))


def outcome(call: Call) -> Any:
    """Return types, shapes, and whether results are contiguous; or the kind of the error."""
    torch.manual_seed(0)
    try:
        results = [one for one in tree_leaves(call()) if isinstance(one, torch.Tensor)]
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return "IndexError" if isinstance(error, IndexError) else "error"
    return [(one.dtype, tuple(one.shape), one.is_contiguous()) for one in results]


def _backward(layer: nn.Module, given: torch.Tensor) -> list[torch.Tensor | None]:
    """Return a layer's result, and the gradients of its input and its parameters."""
    result = layer(given.requires_grad_())
    result.backward(torch.ones_like(result))
    return [result, given.grad, *(one.grad for one in layer.parameters())]


def of(function: Callable[[torch.Tensor], Any], *shape: int) -> Call:
    """Return the call of a function on a new tensor."""
    return lambda: function(x(*shape))


CALLS: dict[str, Call] = {
    "sum of a missing axis": lambda: x(2, 3).sum(5),
    "mean of integers": lambda: torch.arange(3).mean(),
    "mean to integers": lambda: x(3).mean(dtype=torch.int64),
    "sum to integers": lambda: torch.tensor([0.6, 0.6]).sum(dtype=torch.int64),
    "product to integers": lambda: torch.tensor([[2.6, 3.0]]).prod(1, dtype=torch.int64),
    "product to bools": lambda: torch.tensor([0.6, 0.6]).prod(dtype=torch.bool),
    "weight norm of a vector": lambda: torch.ops.aten._weight_norm_interface(torch.tensor([-2.0, 4.0]), x(2), 0),
    "weight norm's gradient of a vector": lambda: torch.ops.aten._weight_norm_interface_backward(
        x(2), torch.tensor([-2.0, 4.0]), x(2), torch.tensor([2.0, 4.0]), 0
    ),
    "sum of integers to f32": lambda: torch.arange(12).reshape(3, 4).sum(0, dtype=torch.float32),
    "0-dim f32 + f64": lambda: torch.add(torch.tensor(1.0), torch.tensor(2.0, dtype=F64), alpha=2),
    "0-dim bf16 + f32": lambda: torch.add(torch.tensor(1.0, dtype=BF16), torch.tensor(2.0), alpha=2),
    "floats into integers": lambda: torch.arange(3).add_(x(3), alpha=2),
    "products into integers": lambda: torch.arange(3).addcmul_(x(3), x(3)),
    "exp into integers": lambda: torch.exp(x(3), out=torch.zeros(3, dtype=torch.int64)),
    "exp of integers": lambda: torch.arange(3).exp(),
    "SiLU of integers": lambda: F.silu(torch.arange(3)),
    "square root of bools": lambda: torch.tensor([True, False]).sqrt(),
    "integers to an integer": lambda: torch.arange(3) ** 2,
    "integers to a float": lambda: torch.arange(3) ** 1.5,
    "rows of another shape": lambda: x(3, 4).index_add(0, torch.tensor([0, 1]), x(2, 1)),
    **{
        f"{name} in index_add": lambda self=self, index=index, source=source: torch.index_add(
            self, 0, index, source, out=torch.empty_like(self)
        )
        for name, self, index, source in (
            ("a float index", x(4), torch.tensor([0.0, 1.2]), x(2)),
            ("a source of another type", x(4), torch.tensor([0, 1]), x(2, dtype=BF16)),
        )
    },
    "cells of no position": lambda: torch.ops.aten._adaptive_avg_pool2d(x(1, 3, 0, 4), [2, 2]),
    "cells along three axes": lambda: torch.ops.aten._adaptive_avg_pool2d(x(1, 2, 4, 4), [2, 2, 2]),
    "cells of another rank": lambda: torch.ops.aten._adaptive_avg_pool2d_backward(x(3, 2, 2), x(1, 3, 4, 4)),
    "the gradient of no grid": lambda: torch.ops.aten.grid_sampler_2d_backward(
        x(0, 2, 1, 2), x(0, 2, 3, 3), x(0, 1, 2, 2), 0, 0, False, [True, True]
    ),
    **{
        f"a scale of {scale}": lambda scale=scale: torch.ops.aten.upsample_linear1d_backward(
            x(1, 1, 6), [6], [1, 1, 4], False, scale
        )
        for scale in (1e-30, float("nan"), -1.0)
    },
    "a larger matrix": lambda: torch.addmm(x(2, 3, 4), x(3, 5), x(5, 4)),
    "factors that do not fit": lambda: torch.mm(x(2, 0), x(3, 4)),
    "weights of another length": lambda: F.nll_loss(x(3, 4), torch.tensor([0, 1, 2]), x(5)),
    "32-bit labels": lambda: F.nll_loss(x(3, 4), torch.tensor([0, 1, 2], dtype=torch.int32)),
    "8-bit labels": lambda: F.cross_entropy(x(3, 4), torch.tensor([0, 1, 2], dtype=torch.uint8)),
    "a label that is no class": lambda: F.nll_loss(x(3, 4), torch.tensor([0, 1, 4])),
    "huber with delta 0": lambda: F.huber_loss(x(3), x(3), delta=0),
    "lerp of two types": lambda: torch.lerp(x(3), x(3, dtype=F64), 0.5),
    "batched products": lambda: torch.bmm(x(3, 4, 5), x(3, 5, 6)).view(3, -1),
    "softmax of a view": lambda: F.softmax(x(2, 3, 4, 5).permute(0, 2, 1, 3), -1).view(2, -1),
    "batch norm of a view": lambda: F.batch_norm(x(2, 4, 3).transpose(1, 2), None, None, training=True),
    "channels last": lambda: F.batch_norm(last(2, 3, 4, 5), None, None, training=True),
    "log of a sigmoid of channels last": lambda: F.logsigmoid(last(2, 3, 4, 5)),
    "a power of channels last": lambda: 2.0 ** last(2, 3, 4, 5),
    "a byte plus 300": lambda: torch.ones(2, dtype=torch.uint8) + 300,
    "beyond f32": lambda: x(2) + 1e300,
    "an embedding of nothing": lambda: torch.ops.aten.embedding_dense_backward(
        x(0, 4), torch.empty(0, dtype=torch.int64), 3, -1, False
    ),
    **{
        f"no image in a group norm of {groups}": lambda groups=groups: _backward(nn.GroupNorm(groups, 4), x(0, 4, 2, 3))
        for groups in (1, 2, 4)
    },
    "an empty image in a group norm": lambda: _backward(nn.GroupNorm(2, 4), x(2, 4, 0, 3)),
    "a shifted sum in place": of(lambda a: a[1:].add_(a[:-1], alpha=2), 9),
    "a sum with an own element": of(lambda a: a.add_(a[0], alpha=2), 9),
    "a sum with itself": of(lambda a: a.add_(a, alpha=2), 9),
    "a sum with every second": of(lambda a: a[::2].add_(a[1::2], alpha=2), 8),
    "a product into a part": of(lambda a: torch.addcmul(a[:-2], a[2:], a[2:], out=a[2:]), 9),
    "a transposed sum in place": of(lambda a: a.add_(a.T, alpha=2), 3, 3),
    "sum of a missing axis into a tensor": lambda: torch.sum(x(3, 4), 5, out=torch.empty(3)),
    "sum of an axis twice into a tensor": lambda: torch.sum(x(3, 4), (0, 0), out=torch.empty(4)),
    "norm of a missing axis into a tensor": lambda: torch.linalg.vector_norm(x(3, 4), 2, 5, out=torch.empty(3)),
    "a sum into an empty tensor": lambda: torch.add(x(3), x(3), alpha=2, out=torch.empty(0)),
    "types of tensors without axes": lambda: torch.add(torch.ones((), dtype=torch.bfloat16), torch.ones(()), alpha=2),
    "types of tensors with and without axes": lambda: torch.addcmul(
        torch.ones(()), torch.ones(()), torch.ones(3, dtype=torch.bfloat16), value=2
    ),
    **{
        f"a layer that does not fit: {name}": lambda options=options: F.conv2d(x(1, 4, 5, 5), x(6, 2, 3, 3), **options)
        for name, options in {
            "channels": {},
            "stride 0": {"groups": 2, "stride": 0},
            "a bias": {"groups": 2, "bias": x(5)},
            "taps": {"groups": 2, "dilation": 3},
        }.items()
    },
    "a transposed layer of another type": lambda: F.conv_transpose2d(x(1, 6, 5, 5), x(6, 2, 3, 3, dtype=BF16)),
    **{
        f"a gradient that does not fit: {weight} and {gradient}": lambda weight=weight, gradient=gradient: (
            torch.nn.grad.conv2d_weight(x(2, 4, 5, 5), weight, x(*gradient))
        )
        for weight in ((8, 4, 3, 3), (8, 3, 3, 3), (8, 4, 4, 3))
        for gradient in ((2, 8, 3, 3), (2, 8, 4, 3), (2, 7, 3, 3), (1, 8, 3, 3))
    },
    "a gradient of the input that does not fit": lambda: torch.nn.grad.conv2d_input(
        (2, 4, 5, 5), x(8, 4, 3, 3), x(2, 8, 5, 5)
    ),
    "softshrink's gradient in f64": lambda: torch.ops.aten.softshrink_backward(x(3, dtype=F64), x(3, dtype=F64), 1e300),
    "a factor that f32 does not have": lambda: torch.add(x(3), x(3), alpha=1e40),
    "no row in a layer norm": lambda: _backward(nn.LayerNorm(4), x(0, 4)),
    "no size": lambda: F.interpolate(x(1, 2, 4, 4), size=(0, 3), mode="bilinear"),
    "uniform numbers of an empty range": lambda: x(3).uniform_(2, 1),
    "chances above 1": lambda: x(3).bernoulli_(1.5),
    **{
        f"normal numbers of {means} and {deviations}": lambda means=means, deviations=deviations: torch.normal(
            x(2, 1).to(means), x(3).to(deviations)
        )
        for means, deviations in ((BF16, F64), (torch.float32, F64), (torch.float32, torch.int64), (torch.int64, F64))
    },
    "normal numbers of tensors": lambda: torch.normal(x(3), x(3)),
    **{
        f"normal numbers of mean {mean} and deviations {std}": lambda mean=mean, std=std: torch.normal(
            mean, torch.tensor(std)
        )
        for mean in (0.0, x(2))
        for std in ([-1.0, 2.0], [float("nan"), 2.0], [-0.0, 2.0])
    },
    "normal numbers of no deviation": lambda: torch.normal(0.0, torch.zeros(0)),
    "normal numbers of a negative deviation": lambda: torch.normal(x(3), -1.0),
    "chances of NaN": lambda: torch.bernoulli(torch.tensor([float("nan")])),
    "distributions": lambda: torch.distributions.Normal(x(3), x(3)).sample(),
    "index assignment": lambda: x(4, 3).index_put_((torch.tensor([1, 1]),), torch.tensor(7.0)),
    "a larger tensor after an assignment": lambda: x(3).index_put_((torch.tensor([1]),), torch.tensor(7.0)).resize_(99),
    "assignment of bools": lambda: torch.zeros(4, dtype=torch.bool).index_put_(
        (torch.tensor([1]),), torch.tensor(True)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_outcomes(name: str) -> None:
    expected = outcome(CALLS[name])
    with same_bits():
        assert outcome(CALLS[name]) == expected


# beyond f32
REFUSE_MORE = "huber_loss_backward smooth_l1_loss_backward _fused_sgd_ _fused_adam_ _fused_adamw_ arange.start_out"
ORDERS_OF_NORMS = "_cdist_forward _pdist_forward"  # of which only some are computed


@pytest.mark.every(5)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf"), -1.0, 1e39, 1e300])
@pytest.mark.parametrize("name", OPERATORS)
def test_odd_numbers(name: str, odd: float) -> None:
    """An operator refuses the numbers that PyTorch refuses, for each of its arguments that need no integer."""
    make, options = OPERATORS[name]
    arguments = make(drawing(torch.float32, False))
    calls = [
        ([*arguments[:at], odd, *arguments[at + 1 :]], options)
        for at, argument in enumerate(arguments)
        if isinstance(argument, float)
    ]
    calls += [(arguments, options | {key: odd}) for key, number in options.items() if type(number) in (int, float)]
    for changed, keywords in calls:
        call = partial(call_copies, operator(name), changed, keywords)
        expected = outcome(call)
        with same_bits():
            ours = outcome(call)
        may_raise = name in ORDERS_OF_NORMS.split() or (name in REFUSE_MORE.split() and odd > 1e38)
        assert ours == ("error" if may_raise and ours == "error" else expected), keywords


@pytest.mark.parametrize(
    "name", ["a byte plus 300", "beyond f32", "sum to integers", "index assignment", "exp of integers"]
)
def test_values(name: str) -> None:
    expected = CALLS[name]()
    with same_bits():
        torch.testing.assert_close(CALLS[name](), expected)


@pytest.mark.parametrize("dtype", [torch.float32, BF16, torch.float16])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_fused_steps_change_parameters_of_any_type(kind: Any, dtype: torch.dtype) -> None:
    parameter = nn.Parameter(torch.ones(4, dtype=dtype))
    rule = kind([parameter], lr=0.125, fused=True)
    parameter.grad = torch.ones_like(parameter)
    with same_bits():
        rule.step()
    assert (parameter < 0.9).all()


@pytest.mark.parametrize("name", ["_fused_sgd_", "_fused_adam_", "_fused_adamw_"])
def test_fused_steps_refuse_tensors_of_two_types(name: str) -> None:
    make, options = OPERATORS[name]
    lists = make(drawing(torch.float32, False))
    for at in range(3):  # parameters, gradients, and the first of the states
        changed = [[one.bfloat16() for one in tensors] if at == n else tensors for n, tensors in enumerate(lists)]
        call = partial(call_copies, operator(name), changed, options)
        with same_bits():
            ours = outcome(call)
        assert ours == outcome(call) == "error"


def test_equal_indices_are_added_in_order() -> None:
    w = torch.ones(7, requires_grad=True)
    factors, index = torch.linspace(-1, 1, 3_000) ** 3, torch.arange(3_000) % 7
    with same_bits():
        (w[index] * factors).sum().backward()
        assert ct.audit(lambda: torch.autograd.grad(w[index].sum(), w))
    expected = np.zeros(7, np.float32)
    for at, factor in zip(index.tolist(), factors.numpy(), strict=True):
        expected[at] += factor
    assert w.grad is not None
    assert w.grad.numpy().tobytes() == expected.tobytes()


INDICES: dict[str, Any] = {
    "one axis": (torch.tensor([2, 0, -1]),),
    "the second axis": (None, torch.tensor([1, 3])),
    "two axes": (torch.tensor([2, 0]), torch.tensor([1, 1])),
    "apart": (torch.tensor([1]), None, torch.tensor([0])),
    "a mask": (torch.arange(4) % 2 == 0,),
}


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, BF16, torch.float16, F64, torch.int64, torch.bool])
@pytest.mark.parametrize("name", INDICES)
def test_indexed_writes(name: str, dtype: torch.dtype, accumulate: bool) -> None:
    """Types x indices x accumulate x memory formats, with values that are broadcast and that need gradients."""
    target, index = x(4, 5, 3, 2, dtype=dtype), INDICES[name]
    value = torch.tensor(2, dtype=dtype)
    expected = torch.ops.aten.index_put(target, index, value, accumulate)
    for format_ in (torch.contiguous_format, torch.channels_last):
        given = target.to(memory_format=format_, copy=True)
        with same_bits():
            assert torch.equal(torch.ops.aten.index_put(given, index, value, accumulate), expected)
            if dtype in SUMMED:
                learnt = value.clone().requires_grad_()
                result = torch.ops.aten.index_put(given, index, learnt, accumulate)
                (gradient,) = torch.autograd.grad(result, learnt, torch.ones_like(result))
                assert gradient > 0


BEGUN_INSIDE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "log of a sigmoid": F.logsigmoid,
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True) ** 3,
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]) ** 3,
    "group norm": lambda x: F.group_norm(x, 2) ** 3,
    "cross entropy": lambda x: F.cross_entropy(x, torch.arange(30).reshape(5, 6) % 4),
}


@pytest.mark.parametrize("name", BEGUN_INSIDE)
def test_a_gradient_after_the_block(name: str) -> None:
    """PyTorch computes it from what the block has saved."""
    torch.manual_seed(0)
    given = torch.randn(5, 4, 6)
    for values in (given, given[0, 0, 0]) if name.startswith("log") else (given,):
        learnt, exact = values.clone().requires_grad_(), values.double().requires_grad_()
        with same_bits():
            result = BEGUN_INSIDE[name](learnt)
        result.sum().backward()
        BEGUN_INSIDE[name](exact).sum().backward()
        torch.testing.assert_close(learnt.grad, exact.grad, check_dtype=False)


def test_not_strict_lets_powers_and_norms_pass() -> None:
    with same_bits(strict=False):
        for call in (lambda: x(3).double() ** 1.7, lambda: torch.norm(x(3), 3)):
            with pytest.warns(UserWarning, match=r"computes .*, at test_like_pytorch\.py:\d+"):
                call()
    with same_bits():
        assert "aten::linalg_vector_norm" in ct.audit(lambda: torch.norm(x(3), 3)).varying
        with pytest.raises(UnsupportedError, match=r"computes f64 only for the exponents .*, at test_like_pytorch"):
            x(3).double() ** 1.7


def test_derivatives_of_powers() -> None:
    with same_bits():
        for exponent in (2, -0.5, -2, 0.5, 3):
            y = x(3).requires_grad_()
            (first,) = torch.autograd.grad((y**exponent).sum(), y, create_graph=True)
            if exponent in (2, 3):
                first.sum().backward()


def test_exit_without_enter_changes_nothing() -> None:
    users = context._installation._users
    with pytest.raises(RuntimeError, match="this thread has not entered the block"):
        same_bits().__exit__(None, None, None)
    assert context._installation._users == users


def test_one_object_in_two_threads() -> None:
    shared, entered, left = same_bits(), threading.Event(), threading.Event()

    def other() -> None:
        with shared:
            entered.set()
            left.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(60)
    with shared:
        left.set()
        thread.join()
        assert context.is_active()
    assert not context.is_active()


def test_coroutines_and_generators_are_not_decorated() -> None:
    async def coroutine() -> None: ...

    def generator() -> Any:
        yield

    for function in (coroutine, generator):
        with pytest.raises(InvalidAttributeError, match="coroutines and generators cannot be decorated"):
            same_bits()(function)


def test_the_default_type_changes_no_bits() -> None:
    def gradients() -> list[torch.Tensor]:
        weight, image = x(5, 3).requires_grad_(), x(1, 2, 5, 5).requires_grad_()
        loss = F.embedding(torch.tensor([1, 1, 4]), weight).sum() + F.adaptive_avg_pool2d(image, 2).square().sum()
        return list(torch.autograd.grad(loss, (weight, image)))

    with same_bits():
        expected = gradients()
        for dtype in (F64, BF16):
            torch.set_default_dtype(dtype)
            try:
                found = gradients()
            finally:
                torch.set_default_dtype(torch.float32)
            assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, expected, strict=True)), dtype

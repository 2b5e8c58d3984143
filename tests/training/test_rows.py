"""Every operator that `same_bits` computes: exact on integers, with the same bits in all formats and variants."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import convgrad
from convgrad.engines.llvm.elementwise import run
from convgrad.spec.elementwise.table import MAPS
from convgrad.torch import same_bits
from convgrad.torch.training.groups import rows
from convgrad.torch.training.indexed import _scattered
from convgrad.torch.training.row import ROWS, overloads_of
from tests.training.digests import digest
from tests.training.row_cases import CASES, EXACT, drawing, operator, results

pytestmark = pytest.mark.usefixtures("installed")
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
ONE = torch.ones(1, 1)


def test_each_row_has_a_case() -> None:
    of_rows = {name for row in ROWS for name in row.names}
    assert of_rows - {f"{name}.tensor_lr" for name in CASES} == set(CASES)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", sorted(EXACT))
def test_exact_on_integers(name: str, last: bool) -> None:
    expected = results(name, drawing(torch.float64, False))
    with same_bits():
        found = results(name, drawing(F32, last))
    for a, b in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        if isinstance(a, torch.Tensor) and a.is_floating_point():
            torch.testing.assert_close(a.double(), b.double(), rtol=0, atol=0)


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("name", sorted(set(CASES) - {"convolution"}))
def test_integers_become_the_types_of_pytorch(name: str, dtype: torch.dtype) -> None:
    def types() -> list[torch.dtype] | None:
        try:
            found = results(name, drawing(dtype, False))
        except (RuntimeError, NotImplementedError, IndexError):
            return None
        return [one.dtype for one in tree_leaves(found) if isinstance(one, torch.Tensor)]

    expected = types()
    with same_bits():
        found = types()
    if expected is None:  # what PyTorch refuses, a row may compute, but not cut off to an integer
        assert all(one.is_floating_point for one in found or [])
    else:
        assert found == expected


@pytest.mark.parametrize("name", [name for name, (row, stores) in rows().items() if stores != "new"])
def test_variants_store_the_same(name: str) -> None:
    row, stores = rows()[name]
    base = next(one for one in row.names if name in overloads_of(one))
    make, options = CASES[base]
    options = {key: value for key, value in options.items() if key != "out"}
    if base == name:  # it has no form that returns a new tensor
        return
    with same_bits():
        torch.manual_seed(0)
        expected = operator(base)(*make(drawing(F32, False)), **options)
        torch.manual_seed(0)
        arguments = make(drawing(F32, False))
        if stores == "in place":
            first = arguments[0].clone()
            if expected.shape != first.shape:  # a bias has another shape than the result
                return
            found: Any = operator(name)(first, *arguments[1:], **options)
            assert found is first
        else:
            names = [one.name for one in operator(name)._schema.arguments if one.is_out]
            several = expected if isinstance(expected, tuple) else (expected,)
            like = [torch.empty(0) if one is None else one for one in several]
            outs = {out: torch.full_like(one, math.nan) for out, one in zip(names, like, strict=True)}
            found = operator(name)(*arguments, **options, **outs)
            if isinstance(expected, tuple):
                found = tuple(None if one is None else mine for one, mine in zip(expected, found, strict=True))
    assert digest(found) == digest(expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["group", "layer"])
def test_parameters_in_f32_have_gradients_in_f32(kind: str, dtype: torch.dtype) -> None:
    """The gradients are large: rounded to f16, they would be infinite."""
    torch.manual_seed(0)
    x, g = torch.randn(8, 32, 256).to(dtype) + 10, (torch.randn(8, 32, 256) * 1000).to(dtype)
    norm = torch.nn.GroupNorm(8, 32) if kind == "group" else torch.nn.LayerNorm(256)
    exact = copy.deepcopy(norm).double()
    exact(x.double()).backward(g.double())
    with same_bits():
        norm(x).backward(g)
    for mine, theirs in zip(norm.parameters(), exact.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert (mine.grad - theirs.grad).abs().max() <= 1e-5 * theirs.grad.abs().max()


_SMALL, _LARGE = torch.full((1000,), 1e-42), torch.full((1000,), 1e20)
_WIDE = torch.full((1000,), 1e-39, dtype=torch.float64)


def _of_small_numbers() -> list[str]:
    """Return the digests of results of numbers that are denormal in f32: operands, factors, and what is stored."""
    zeros = torch.zeros(1000)
    results = [_SMALL.sum(), _SMALL.mean(), torch.linalg.vector_norm(_SMALL), torch.nn.functional.silu(_SMALL)]
    results += [torch.add(zeros, _LARGE, alpha=1e-40), torch.addcmul(zeros, _LARGE, _LARGE, value=1e-41)]
    results += [torch.addcdiv(zeros, _LARGE, _LARGE, value=1e-41), torch.sqrt(_WIDE * _WIDE, out=zeros.clone())]
    return [digest(one) for one in results]


def _flushed(function: Callable[[], Any]) -> Any:
    assert torch.set_flush_denormal(True)
    try:
        return function()
    finally:
        torch.set_flush_denormal(False)


def test_flushed_denormals_change_nothing() -> None:
    """At the first call of a kind, and at later ones."""
    with same_bits():
        first = _flushed(_of_small_numbers)
        assert first == _of_small_numbers() == _flushed(_of_small_numbers)


def test_flushed_denormals_leave_no_number_behind() -> None:
    """PyTorch adds a number itself, which then is 0, but same_bits() keeps the number as a tensor."""
    x = torch.zeros(3)
    with same_bits():
        _flushed(lambda: x + 3e-41)
        assert torch.equal(x + 3e-41, torch.full((3,), 3e-41))


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "sigmoid", "tanh"])
def test_functions_are_within_their_errors(name: str) -> None:
    x = torch.linspace(-30, 30, 4001) if name not in ("log", "log1p") else torch.logspace(-30, 30, 4001)
    exact = getattr(torch, name)(x.double())
    with same_bits():
        found = getattr(torch, name)(x)
    ulp = torch.ldexp(torch.ones_like(exact), torch.frexp(exact.abs()).exponent - 24)
    assert ((found.double() - exact).abs() <= MAPS[name].ulps * ulp).all()


def test_square_root_is_ieee() -> None:
    x = torch.tensor([float.fromhex("0x1.cf3238p+0"), 0.0, -0.0, math.inf, 2.0**-140])
    with same_bits():
        root = x.sqrt()
    assert root[0].item() == float.fromhex("0x1.585a14p+0")
    assert math.copysign(1, root[2]) == -1


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(32, 5), (4, 5, 9), (4, 5, 6, 7), (2, 5, 3, 4, 6), (64, 5, 1, 1)])
def test_batch_norm_is_within_its_bound(shape: tuple[int, ...], training: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, requires_grad=True)
    norm = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d}.get(
        len(shape), torch.nn.BatchNorm3d
    )
    ours, exact = (norm(5).train(training) for _ in range(2))
    exact.double()
    y = x.detach().double().requires_grad_()
    g = torch.randn(shape)
    with same_bits():
        found = ours(x)
        found.backward(g)
    expected = exact(y)
    expected.backward(g.double())
    height = 256 + 16 + 16  # a chain and two levels of the tree
    for a, b in ((found, expected), (x.grad, y.grad)):
        limit = (height + 12) * 2.0**-24 * 4 * b.abs().max()
        assert ((a.double() - b).abs() <= limit).all()
    number = x.numel() / 5
    for a, b in ((ours.weight.grad, exact.weight.grad), (ours.bias.grad, exact.bias.grad)):
        assert ((a.double() - b).abs() <= (height + 12) * 2.0**-24 * number * 4).all()
    assert ((ours.running_var.double() - exact.running_var).abs() <= 2.0**-20 * exact.running_var.abs()).all()


@pytest.mark.parametrize("name", ["add.Tensor", "sub.Tensor", "rsub.Tensor"])
@pytest.mark.parametrize("dtype", [torch.float64, F32, BF16, torch.int64])
def test_python_numbers_keep_the_type(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(6).to(dtype)
    for rank in (1, 0):
        given = x if rank else x[2]
        with same_bits():
            found = given + 2, 2 - given, given - 2, given.add(2, alpha=3)
        expected = given + 2, 2 - given, given - 2, given.add(2, alpha=3)
        assert [one.dtype for one in found] == [one.dtype for one in expected]
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "loss", ["cross_entropy", "mse_loss", "smooth_l1_loss", "huber_loss", "bce", "bce_logits", "l1"]
)
def test_losses_and_gradients_near_f64(loss: str, reduction: str) -> None:
    torch.manual_seed(0)
    x, t, weights = torch.randn(6, 5), torch.rand(6, 5), torch.rand(6, 5)
    calls = {
        "cross_entropy": lambda x: torch.nn.functional.cross_entropy(
            x, torch.tensor([0, 1, 4, -100, 2, 3]), torch.arange(1.0, 6).to(x.dtype), reduction=reduction
        ),
        "bce": lambda x: torch.nn.functional.binary_cross_entropy(
            x.sigmoid(), t.to(x.dtype), weights.to(x.dtype), reduction=reduction
        ),
        "bce_logits": lambda x: torch.nn.functional.binary_cross_entropy_with_logits(
            x, t.to(x.dtype), weights.to(x.dtype), pos_weight=1 + weights[0].to(x.dtype), reduction=reduction
        ),
        "l1": lambda x: torch.nn.functional.l1_loss(x, t.to(x.dtype), reduction=reduction),
    }
    call = calls.get(loss) or (lambda x: getattr(torch.nn.functional, loss)(x, t.to(x.dtype), reduction=reduction))
    a, b = x.clone().requires_grad_(), x.double().requires_grad_()
    with same_bits():
        ours = call(a)
        ours.sum().backward()
    exact = call(b)
    exact.sum().backward()
    terms = x.numel()  # no sum has more terms, and no operation more than 8 roundings on top
    for found, expected in ((ours, exact), (a.grad, b.grad)):
        assert ((found.double() - expected).abs() <= (terms + 8) * 2.0**-24 * (1 + expected.abs().max() * 4)).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_the_mean_of_many_labels_in_16_bits(dtype: torch.dtype, weighted: bool) -> None:
    """The number of labels is rounded to 257 + 1 in bf16, and to infinity in f16."""
    labels = torch.arange({BF16: 257, F16: 65_537}[dtype]) % 4
    x, weight = torch.zeros(len(labels), 4, dtype=dtype), torch.tensor([1.0, 1.75, 1.25, 0.875]) if weighted else None
    given, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    with same_bits():
        torch.nn.functional.nll_loss(given, labels, None if weight is None else weight.to(dtype)).backward()
    torch.nn.functional.nll_loss(exact, labels, None if weight is None else weight.double()).backward()
    assert given.grad is not None
    assert exact.grad is not None
    assert torch.equal(given.grad, exact.grad.to(dtype))


@pytest.mark.parametrize("name", [name for row in ROWS if row.corrects for name in row.names])
def test_zeros_are_positive(name: str) -> None:
    with same_bits():
        found = tree_leaves(results(name, drawing(F32, False)))
        assert not any((one.signbit() | (one != 0)).any() for one in found)
    torch.testing.assert_close(found, tree_leaves(results(name, drawing(F32, False))), rtol=0, atol=0)


def test_max_error_reaches_convolutions() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(2, 40, 32, 32), torch.randn(50, 40, 3, 3)  # as in tests/torch/test_max_error.py
    with same_bits():
        direct = torch.nn.functional.conv2d(x, w, padding=1)
        with convgrad.max_error(64):
            tiled = torch.nn.functional.conv2d(x, w, padding=1)
    assert not torch.equal(direct, tiled)
    assert torch.equal(direct, convgrad.torch.conv2d(x, w, padding=1))
    assert torch.equal(tiled, convgrad.torch.conv2d(x, w, padding=1, max_error=64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_that_nobody_wants_change_no_others(dtype: torch.dtype) -> None:
    x, g, weight, bias = (torch.randn(shape).to(dtype) for shape in ((33, 70), (33, 70), (70,), (70,)))
    backward = torch.ops.aten.native_layer_norm_backward
    with same_bits():
        _, mean, inverse = torch.ops.aten.native_layer_norm(x, [70], weight, bias, 1e-5)
        given = g, x, [70], mean, inverse, weight, bias
        every = backward(*given, [True] * 3)
        for wanted in range(3):
            found = backward(*given, [number == wanted for number in range(3)])
            assert [one is None for one in found] == [number != wanted for number in range(3)]
            assert torch.equal(found[wanted], every[wanted])


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
def test_the_default_type_changes_no_norm(default: torch.dtype) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(4, 64, 3), torch.rand(64)

    def found() -> list[str]:
        functional = torch.nn.functional
        results = [
            functional.batch_norm(x, None, None, w, w, training=True), functional.group_norm(x, 8, w, w),
            functional.layer_norm(x, (3,)), functional.layer_norm(x, (3,), w[:3].contiguous()),
        ]  # fmt: skip
        return [digest(one) for one in results]

    with same_bits():
        expected = found()
        torch.set_default_dtype(default)
        try:
            assert found() == expected
        finally:
            torch.set_default_dtype(F32)


def test_running_values_do_not_change_a_lazy_clone() -> None:
    mean = torch.zeros(1)
    saved = torch._lazy_clone(mean)
    with same_bits():
        torch.nn.functional.batch_norm(torch.tensor([[1.0], [3.0]]), mean, torch.ones(1), training=True, momentum=0.5)
    assert (mean.item(), saved.item()) == (1.0, 0.0)


@pytest.mark.parametrize("rule", [torch.optim.SGD, torch.optim.AdamW])
def test_fused_steps_of_empty_parameters(rule: Any) -> None:
    empty, other = torch.nn.Parameter(torch.zeros(0, 3)), torch.nn.Parameter(torch.ones(2, dtype=BF16))
    empty.grad, other.grad = torch.zeros(0, 3), torch.ones(2, dtype=BF16)
    with same_bits():
        rule([empty, other], 0.25, fused=True).step()
    assert (other < 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("norm", ["layer", "group", "batch"])
def test_a_missing_weight_is_1_and_a_missing_bias_is_0(norm: str, dtype: torch.dtype) -> None:
    x, weight, bias = torch.randn(3, 4, 5).to(dtype), torch.randn(4).to(dtype), torch.randn(4).to(dtype)
    calls = {
        "layer": lambda *affine: torch.nn.functional.layer_norm(x.transpose(1, 2), [4], *affine),
        "group": lambda *affine: torch.nn.functional.group_norm(x, 2, *affine),
        "batch": lambda *affine: torch.nn.functional.batch_norm(x, None, None, *affine, training=True),
    }
    ones, zeros, call = torch.ones_like(weight), torch.zeros_like(bias), calls[norm]
    with same_bits():
        for missing, given in (((weight, None), (weight, zeros)), ((None, bias), (ones, bias)), ((), (ones, zeros))):
            assert torch.equal(call(*missing), call(*given)), missing


def test_cross_entropies_of_0_and_1() -> None:
    x = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5])
    target = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    expected = torch.nn.functional.binary_cross_entropy(x, target, reduction="none")
    with same_bits():
        assert torch.equal(torch.nn.functional.binary_cross_entropy(x, target, reduction="none"), expected)


@pytest.mark.parametrize("shape", [(3, 9, 40, 40), (70, 130, 4, 4), (2, 700, 5, 5), (9, 3, 1, 2)])
def test_batch_norm_is_computed_channel_by_channel(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of some channels have the bits of stages in order, and of channels last, which has no such tasks."""
    x, g, weight = torch.randn(shape), torch.randn(shape), torch.randn(shape[1])
    found = []
    for fit, form in ((True, torch.contiguous_format), (False, torch.contiguous_format), (True, torch.channels_last)):
        run.prepared.cache_clear()
        monkeypatch.setattr(run, "_fit_cache", lambda parts, fit=fit: fit)
        y, h = (tensor.contiguous(memory_format=form) for tensor in (x, g))
        with same_bits():
            results = torch.ops.aten.native_batch_norm(y, weight, weight, None, None, True, 0.1, 1e-5)
            of_norm = torch.ops.aten.native_batch_norm_backward(
                h, y, weight, None, None, *results[1:], True, 1e-5, [True] * 3
            )
        found.append(digest((results, of_norm)))
    assert found == found[:1] * 3


@pytest.mark.every(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (700, 96), (40, 1024), (3, 1025), (0, 5), (5, 0), (8200, 40)])
def test_large_tensors_are_computed_row_by_row(
    shape: tuple[int, int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program by rows has the bits of one by stages, also for rows that are too long for it."""
    x, g, weight, bias = (torch.randn(extents).to(dtype) for extents in (shape, shape, shape[1:], shape[1:]))
    found = []
    monkeypatch.setattr("convgrad.torch.training.channels.threads_of_call", lambda: 2)
    for fit in (True, False):
        run.prepared.cache_clear()
        monkeypatch.setattr(run, "_fit_cache", lambda parts, fit=fit: fit)
        with same_bits():
            y, mean, inverse = torch.ops.aten.native_layer_norm(x, shape[1:], weight, bias, 1e-5)
            moments = mean.float(), inverse.float()
            of_norm = torch.ops.aten.native_layer_norm_backward(g, x, shape[1:], *moments, weight, bias, [True] * 3)
            e, log = torch.softmax(x, 1), torch.log_softmax(x, 1)
            of_e = torch.ops.aten._softmax_backward_data(g, e, 1, dtype)
            of_log = torch.ops.aten._log_softmax_backward_data(g, log, 1, dtype)
        found.append((y, *moments, *of_norm, e, log, of_e, of_log))
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(*found, strict=True))


def test_places_beyond_32_bits() -> None:
    """The index of a scatter may have 32 bits, although the tensor has more elements."""
    for dtype in (torch.int32, torch.int64):
        places, _ = _scattered(torch.zeros(1).expand(70_000, 70_000), 0, torch.tensor([[69_999]], dtype=dtype), ONE)
        assert places.tolist() == [69_999 * 70_000]

"""Arguments at the edge of what PyTorch accepts: the same special values, types, shapes and errors as outside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from math import inf, nan
from typing import Any

import pytest
import torch
from torch import Tensor

from convgrad.errors import UnsupportedError
from convgrad.torch import same_bits
from convgrad.torch.training.groups import rows
from convgrad.torch.training.row import overloads_of
from tests.support.tiers import tiers
from tests.training.row_cases import CASES, drawing, operator
from tests.training.test_default_type import default_type, outcome

pytestmark = pytest.mark.usefixtures("installed")
aten = torch.ops.aten
SPECIAL = torch.tensor([0.0, -0.0, inf, -inf, nan, 1e-40, -1e-40, 1.0, -1.0])
OF_ONE_VALUE = torch.arange(3.0).reshape(1, 3)


def _moved(mean: Tensor | None, variance: Tensor | None) -> list[Tensor | None]:
    """Return the running values after a batch norm of integers in training."""
    x = torch.arange(12.0).reshape(4, 3)
    aten.native_batch_norm(x, None, None, mean, variance, True, 0.5, 0.0)
    return [mean, variance]


def _gradient_in_place(function: Callable[..., Tensor], *numbers: float) -> Tensor:
    """Return the gradient of a function that replaces its input by its result."""
    x = torch.tensor([-2.0, -0.5, 0.0, 0.3, 1.0], requires_grad=True)
    return torch.autograd.grad(function(x * 1, *numbers).sum(), x)[0]


def _in_place_beside_dense(x: Tensor) -> Tensor:
    """Change columns of a matrix by a dense tensor, which is the first half of it."""
    dense = x.flatten()[:50].view(10, 5)
    return x[:, :5].addcmul_(dense, dense, value=2)


def _norm_of(*shape: int) -> Any:
    x = torch.ones(shape)
    channels, positions = x.shape[1], x[0, :1].numel()
    return aten.native_group_norm(x, None, None, shape[0], channels, positions, max(1, channels), 1e-5)[0]


CALLS: dict[str, Callable[[], Any]] = {
    **{f"pow {e}": lambda e=e: torch.pow(SPECIAL, e) for e in (0.5, -0.5, 0.25, 0.75, -0.25, -1.25, 1.5)},
    "glu of an odd size": lambda: torch.nn.functional.glu(torch.ones(3)),
    "glu of a scalar": lambda: torch.nn.functional.glu(torch.ones(())),
    "glu of the first of two": lambda: torch.nn.functional.glu(torch.zeros(4, 3), 0),
    "celu with alpha 0": lambda: torch.celu(torch.ones(2), 0.0),
    **{
        f"{name} in place with alpha {alpha}": lambda name=name, alpha=alpha: _gradient_in_place(
            getattr(torch.nn.functional, f"{name}_"), alpha
        ).round(decimals=6)
        for name, alphas in {"elu": (-0.5, 0.0, 0.5), "celu": (-0.5, 0.5), "leaky_relu": (-0.5, 0.5)}.items()
        for alpha in alphas
    },
    "bool minus float": lambda: torch.tensor([True]) - 1.5,
    "addcdiv of integers": lambda: torch.addcdiv(torch.ones(2), torch.tensor(4), torch.tensor(2)),
    "mm of two types": lambda: torch.ones(2, 2) @ torch.ones(2, 2).bfloat16(),
    "mv of two types": lambda: torch.ones(2, 2) @ torch.ones(2).half(),
    "addmm of two types": lambda: torch.addmm(torch.ones(2).bfloat16(), torch.ones(2, 2), torch.ones(2, 2)),
    "index_put of two types": lambda: torch.zeros(3).index_put((torch.tensor([0]),), torch.ones(1).double()),
    "index_add to nothing": lambda: torch.zeros(0, 2).index_add(1, torch.tensor([0]), torch.zeros(0, 1)),
    "arange to infinity": lambda: torch.arange(0, inf, 0.1),
    "arange backwards": lambda: torch.arange(1.0, 0.0, 0.1),
    "batch norm of one value": lambda: aten.native_batch_norm(OF_ONE_VALUE, None, None, None, None, True, 0.1, 1.0)[0],
    "running values of one value": lambda: aten.native_batch_norm(
        OF_ONE_VALUE, None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1.0
    )[0],
    "running mean only": lambda: _moved(torch.zeros(3), None),
    "running variance only": lambda: _moved(None, torch.zeros(3)),
    "group norm without channels": lambda: _norm_of(2, 0, 3),
    "group norm without positions": lambda: _norm_of(2, 4, 0),
    "smooth L1's gradient at NaN": lambda: aten.smooth_l1_loss_backward(
        torch.ones(1), torch.tensor([nan]), torch.zeros(1), 0, 1.0
    ),
    "cross entropy of two classes above 1": lambda: torch.nn.functional.binary_cross_entropy(
        torch.full((2,), 0.5), torch.full((2,), 2.0)
    ),
    "labels of 8 bits that are ignore_index modulo 256": lambda: torch.nn.functional.nll_loss(
        torch.arange(-200.0, 0.0).reshape(1, 200), torch.tensor([156], dtype=torch.uint8)
    ),
    "a dense operand over a part of a tensor with gaps": lambda: _in_place_beside_dense(torch.zeros(10, 10)),
    "empty tensors with gaps": lambda: torch.ones(0, 0, 0, 0, 8).lerp(
        torch.ones(3, 3, 3, 3, 11)[:0, :0, :0, :0, :8], 0.3
    ),
    **{
        f"softmax of {shape} along {dim}": lambda shape=shape, dim=dim: torch.softmax(torch.ones(shape), dim)
        for shape in ((), (3, 4), (0, 4))
        for dim in (-3, -2, -1, 0, 1, 2)
    },
    "a gradient of softmax of another shape": lambda: aten._softmax_backward_data(
        torch.ones(6, 8), torch.ones(1, 8), 1, torch.float32
    ),
    "the loss of a vector": lambda: torch.nn.functional.nll_loss(torch.ones(1), torch.tensor([0]), reduction="none"),
    **{
        f"arguments that do not fit, with out: {name}": lambda form=form, arguments=arguments: form(
            *arguments, out=torch.empty(0)
        )
        for name, form, arguments in (
            ("softmax", torch.softmax, (torch.ones(3, 4), 2)),
            ("log_softmax", torch.log_softmax, (torch.ones(3, 4), -3)),
            ("bmm", torch.bmm, (torch.ones(2, 3, 4), torch.ones(1, 8, 3))),
            ("baddbmm", torch.baddbmm, (torch.ones(2, 3, 3), torch.ones(2, 3, 4), torch.ones(1, 8, 3))),
            ("mm", torch.mm, (torch.ones(2, 3, 4), torch.ones(4, 5))),
        )
    },
    **{
        f"{steps} numbers from {start} to {end} in {dtype}": lambda start=start, end=end, steps=steps, dtype=dtype: (
            torch.linspace(start, end, steps, dtype=dtype)
        )
        for start, end in ((0.5, 9.9), (-3.7, 33.3), (2.9, -7.5), (inf, 3), (0, nan), (0, 300))
        for steps in (0, 1, 7)
        for dtype in (torch.uint8, torch.int64)
    },
    "normal numbers of no deviation": lambda: torch.ones(3).normal_(0, nan),
    "a soft margin of another shape": lambda: torch.nn.functional.soft_margin_loss(torch.ones(1, 4), torch.ones(3, 4)),
    "a smaller image with an infinity": lambda: torch.nn.functional.interpolate(
        torch.tensor([[1.0] * 10 + [inf]]).expand(1, 1, 1, 11), (1, 3), mode="bilinear", antialias=True
    ),
    "an infinite gradient outside of an image": lambda: aten.grid_sampler_2d_backward(
        torch.tensor([[[[inf, 1.0]]]]),
        torch.ones(1, 1, 2, 2),
        torch.tensor([[[[-9.0, 0.0], [0.5, 0.5]]]]),
        0,
        0,
        False,
        [True, False],
    )[0],
    "a gradient of embeddings out of range": lambda: aten.embedding_dense_backward(
        torch.ones(2, 3), torch.tensor([0, 5]), 2, -1, False
    ),
}


@pytest.fixture(scope="module")
def inside() -> dict[str, Any]:
    """Return the outcomes of all calls in one block."""
    with same_bits():
        return {name: outcome(call) for name, call in CALLS.items()}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_as_outside(name: str, inside: dict[str, Any]) -> None:
    expected = outcome(CALLS[name])
    if name.startswith("group norm") and expected is RuntimeError:
        pytest.skip("this PyTorch refuses empty groups")
    assert inside[name] == expected


def test_elu_in_place_with_a_negative_scale() -> None:
    """PyTorch returns a wrong gradient, because a positive number then has a negative result."""
    with same_bits():
        for numbers in ((1.0, -1.0, 1.0), (1.0, 1.0, -1.0)):
            with pytest.raises(RuntimeError, match="In-place elu has no gradient for a negative slope"):
                _gradient_in_place(aten.elu_, *numbers)


def _norms(x: torch.dtype, p: torch.dtype) -> list[Any]:
    """Return the outcomes of norms of tensors of type x with parameters of type p."""
    ones, one = torch.ones(2, 4, 3).to(x), torch.ones(4).to(p)
    return [
        outcome(lambda: torch.nn.functional.batch_norm(ones, one.clone(), one.clone(), one, one, True)),
        outcome(lambda: torch.nn.functional.batch_norm(ones, one, one, one, one, False)),
        outcome(lambda: torch.nn.functional.group_norm(ones, 2, one, one)),
        outcome(lambda: torch.nn.functional.layer_norm(ones.mT, (4,), one, one)),
    ]


def test_types_of_norms_and_parameters() -> None:
    pairs = list(product((torch.float32, torch.bfloat16, torch.float16), repeat=2))
    with same_bits():
        found = [_norms(*pair) for pair in pairs]
    for pair, one in zip(pairs, found, strict=True):
        assert [type(each) for each in one] == [type(each) for each in _norms(*pair)], pair


FLOATS = torch.float32, torch.bfloat16, torch.float16
ONE, WIDE_ONE = torch.tensor(1.0), torch.tensor(1.0, dtype=torch.float64)
OF_F32: dict[str, Callable[[], Any]] = {
    "xlogy": lambda: torch.xlogy(WIDE_ONE, ONE),
    "silu": lambda: aten.silu_backward(WIDE_ONE, ONE),
    "a loss": lambda: aten.soft_margin_loss(WIDE_ONE, ONE, 0),
    "a mean": lambda: aten.smooth_l1_loss(WIDE_ONE, ONE),
    **{f"{name} of integers": lambda name=name: getattr(torch, name)(torch.tensor([1])) for name in ("exp", "erf")},
}


@pytest.mark.parametrize("name", OF_F32)
def test_operations_of_f32_are_not_computed_in_f64(name: str) -> None:
    with default_type(torch.float64), same_bits(), pytest.raises(UnsupportedError, match="has no specified o"):
        OF_F32[name]()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sequences_are_rounded_once(dtype: torch.dtype) -> None:
    """PyTorch adds a rounded number to those of a vector."""
    with same_bits():
        found = torch.arange(1, 60_000, 3, dtype=dtype)
    assert torch.equal(found, torch.arange(1, 60_000, 3).to(dtype))


def test_sums_have_the_type_of_out() -> None:
    """They are not rounded to the type of the input before."""
    x, dtypes = torch.tensor([1.0, 2.0**-9, 0.0, 2.0**-10]), (*FLOATS, torch.int64)
    cases = [*product((torch.sum, torch.mean), dtypes, dtypes, (0, [0], None))]

    def outcomes() -> list[Any]:
        return [
            outcome(partial(sums, x.to(given), dim, out=torch.zeros((), dtype=to))) for sums, given, to, dim in cases
        ]

    expected = outcomes()
    with same_bits():
        found = outcomes()
        for sums in (torch.sum, torch.mean):
            with pytest.raises(UnsupportedError, match=r"has no specified order for torch\.float64"):
                sums(x, 0, out=torch.zeros((), dtype=torch.float64))
    for case, one, other in zip(cases, found, expected, strict=True):
        assert other in (one, RuntimeError), case


@tiers("reduction, rest", [(0, 0), (1, 1), (2, 2)], long=[(at, rest) for at in range(3) for rest in {0, 1, 2} - {at}])
def test_cross_entropies_of_two_types(reduction: int, rest: int) -> None:
    """The results have PyTorch's types, and are rounded to no other type. A reduction meets each pair of types."""
    logits, targets, weights, one = torch.randn(6, 5), torch.rand(6, 5), torch.rand(6, 5), torch.ones(())
    calls: list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = []
    for first, second in product(range(3), repeat=2):
        given, to, of_weight = (FLOATS[at] for at in (first, second, (rest - first - second) % 3))
        x, t, w = logits.to(given), targets.to(to), weights.to(of_weight)
        calls += [
            (aten.binary_cross_entropy_with_logits, (x, t, w, w)),
            (aten.binary_cross_entropy, (x.sigmoid(), t, w)),
            (aten.binary_cross_entropy_backward, (one.to(given), x.sigmoid(), t, w)),
        ]

    def results(*to: torch.dtype) -> list[Tensor | None]:
        found: list[Tensor | None] = []
        for function, arguments in calls:
            try:
                found.append(function(*[one.to(*to) if to else one for one in arguments], reduction=reduction))
            except RuntimeError:
                found.append(None)
        return found

    expected, exact = results(), results(torch.float64)
    with same_bits():
        found = results()
    for call, mine, theirs, wide in zip(calls, found, expected, exact, strict=True):
        assert [mine is None, getattr(mine, "dtype", None)] == [theirs is None, getattr(theirs, "dtype", None)], call
        if mine is not None:
            eps = max(4 * torch.finfo(mine.dtype).eps, 1e-5)
            torch.testing.assert_close(mine.double(), wide, rtol=eps, atol=eps)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64])
def test_gradients_at_nan_and_remainders_in_two_formats(dtype: torch.dtype) -> None:
    """PyTorch's are 0, NaN, or the gradient of the result, depending on the strides."""
    g = torch.linspace(-2, 2, 64).to(dtype)
    x = torch.where(torch.arange(64) % 3 == 0, nan, g * 2)
    strided = torch.stack([x, x], 1)[:, 0]
    calls: list[Callable[[Tensor], Tensor]] = [
        lambda x: aten.hardswish_backward(g, x), lambda x: aten.hardtanh_backward(g, x, -1, 1),
        lambda x: aten.hardshrink_backward(g, x, 0.5), lambda x: aten.softshrink_backward(g, x, 0.5),
        lambda x: aten.threshold_backward(g, x, 0.0), lambda x: aten.leaky_relu_backward(g, x, 0.1, False),
        lambda x: torch.fmod(g, x), lambda x: torch.remainder(x, 1e-40), lambda x: torch.remainder(7.5, x * 1e-40),
        lambda x: aten.hardsigmoid_backward(g, x), lambda x: aten._prelu_kernel_backward(g, x, g[:1]),
    ]  # fmt: skip
    with same_bits():
        for number, call in enumerate(calls):
            torch.testing.assert_close(call(strided), call(x), rtol=0, atol=0, equal_nan=True, msg=str(number))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_of_tiny_numbers_in_two_formats(dtype: torch.dtype) -> None:
    """Those that are rounded to 0 have no sign, though PyTorch gives them one for some memory formats."""
    x = (torch.randn(2, 16, 9, 9) * torch.finfo(dtype).tiny * 0.01).to(dtype)
    both = x, x.to(memory_format=torch.channels_last)
    with same_bits():
        of_images = [torch.nn.functional.avg_pool2d(one, 2) for one in both]
        of_rows = [torch.nn.functional.avg_pool1d(one.flatten(2), 2) for one in both]
    for plain, last in (of_images, of_rows):
        assert torch.equal(plain, last)
        assert torch.equal(plain.signbit(), last.signbit())


def _freed(*shape: int) -> torch.Tensor:
    """Return the second half of a tensor whose memory was freed, as that of a parameter of FSDP between two steps."""
    memory = torch.ones(2, *shape)
    half = memory[1]
    memory.untyped_storage().resize_(0)
    return half


_ON_FREED: dict[str, Callable[[], object]] = {
    "map": lambda: torch.nn.functional.gelu(_freed(4, 8)),
    "in place": lambda: _freed(8).add_(torch.ones(8), alpha=2),
    "operand of a map": lambda: torch.ones(8).add_(_freed(8), alpha=2),
    "rows": lambda: torch.softmax(_freed(4, 8), -1),
    "weights": lambda: torch.nn.functional.layer_norm(torch.ones(4, 8), [8], _freed(8)),
    "running values": lambda: torch.nn.functional.batch_norm(torch.ones(4, 8, 3), _freed(8), _freed(8), training=True),
    "convolution": lambda: torch.nn.functional.conv1d(torch.ones(1, 1, 5), _freed(1, 1, 3)),
    "optimizer": lambda: torch._fused_sgd_(
        [_freed(8)], [torch.ones(8)], [], weight_decay=0, momentum=0, lr=0.1, dampening=0, nesterov=False,
        maximize=False, is_first_step=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _ON_FREED)
def test_memory_that_was_freed_is_refused(name: str) -> None:
    """At the first call of a kind, and at later ones, which replay one on other memory."""
    with same_bits():
        torch.nn.functional.gelu(torch.ones(4, 8))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="all tensors must be in memory"):
                _ON_FREED[name]()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_an_image_with_infinities_in_its_own_size_stays_the_same(mode: str) -> None:
    x = SPECIAL.reshape(1, 1, 3, 3)
    with same_bits():
        found = torch.nn.functional.interpolate(x, (3, 3), mode=mode)
    torch.testing.assert_close(found, x, rtol=0, atol=0, equal_nan=True)


@tiers("name", [name for name, (_, stores) in rows().items() if stores == "out"], every=9)
def test_forms_with_out_refuse_what_the_others_refuse(name: str) -> None:
    """For each tensor among the arguments in turn, one with twice as many elements along the last axis."""
    base = next(one for one in rows()[name][0].names if name in overloads_of(one))
    make, options = CASES[base]
    if base == name:
        return
    outs = [one.name for one in operator(name)._schema.arguments if one.is_out]

    def is_refused(form: str, arguments: list[Any], *out: str) -> bool:
        try:
            operator(form)(*arguments, **options, **{one: torch.empty(0) for one in out})
        except (RuntimeError, IndexError, ValueError):
            return True
        return False

    given = make(drawing(torch.float32, False))
    with same_bits():
        for at, argument in enumerate(given):
            if isinstance(argument, torch.Tensor) and argument.dim():
                arguments = [*given[:at], torch.cat([argument, argument], -1), *given[at + 1 :]]
                assert is_refused(name, arguments, *outs) == is_refused(base, arguments), at

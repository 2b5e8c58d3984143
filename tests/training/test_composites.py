"""Operators made of others: values, gradients, types and errors of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import convgrad
from convgrad.errors import UnsupportedError
from convgrad.torch import same_bits

pytestmark = pytest.mark.usefixtures("installed")
Draw = Callable[..., torch.Tensor]
LABELS = torch.tensor([[1, 2, 2, 3], [3, 3, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]])  # those behind a length do not count
BAGS, PADDED = torch.tensor([[0, 4, 4], [2, 3, 1]]), torch.tensor([[0, 4, 4], [4, 4, 4]])


CALLS: dict[str, Callable[[Draw], torch.Tensor]] = {
    "logit": lambda d: torch.logit(d(5, 8).sigmoid()),
    "logit with eps": lambda d: torch.logit(d(5, 8), 0.3),
    "deg2rad": lambda d: torch.deg2rad(d(5, 8)),
    "rad2deg": lambda d: torch.rad2deg(d(5, 8)),
    "hypot": lambda d: torch.hypot(d(5, 8), d(8)),
    "cross": lambda d: torch.linalg.cross(d(5, 3), d(1, 3)),
    "cross along the first axis": lambda d: torch.linalg.cross(d(3, 5), d(3, 5), dim=0),
    **{
        f"renorm {p} {dim}": lambda d, p=p, dim=dim: torch.renorm(d(4, 3, 5), p, dim, 1.5)
        for p, dim in product((1, 2), (0, -1))
    },
    "addr": lambda d: torch.addr(d(5, 7), d(5), d(7), beta=0.5, alpha=2),
    "addr of a vector": lambda d: torch.addr(d(7), d(5), d(7)),
    "addbmm": lambda d: torch.addbmm(d(5, 6), d(3, 5, 7), d(3, 7, 6), beta=2, alpha=0.5),
    **{f"cdist {p}": lambda d, p=p: torch.cdist(d(2, 5, 8), d(2, 7, 8), p) for p in (1.0, 2.0, float("inf"))},
    "cdist of many": lambda d: torch.cdist(d(30, 8), d(27, 8)),
    **{f"pdist {p}": lambda d, p=p: F.pdist(d(6, 8), p) for p in (1.0, 2.0)},
    **{
        f"bags {mode} {padding} {weighted}": lambda d, mode=mode, padding=padding, weighted=weighted: F.embedding_bag(
            BAGS if padding is None else PADDED, d(5, 8), mode=mode, padding_idx=padding,
            per_sample_weights=d(2, 3) if weighted else None,
        )
        for mode, padding, weighted in product(("sum", "mean"), (None, 4), (False, True))
        if mode == "sum" or not weighted
    },
    "bags with offsets": lambda d: F.embedding_bag(torch.tensor([1, 2, 1, 0, 3]), d(5, 8), torch.tensor([0, 2, 2])),
    "bags with the last offset": lambda d: F.embedding_bag(
        torch.tensor([1, 2, 1]), d(5, 8), torch.tensor([0, 0, 3]), include_last_offset=True, mode="sum"
    ),
    "bags scaled by frequency": lambda d: F.embedding_bag(BAGS, d(5, 8), mode="sum", scale_grad_by_freq=True),
    **{
        f"ctc {reduction} {blank}": lambda d, reduction=reduction, blank=blank: F.ctc_loss(
            d(7, 4, 5).log_softmax(2), LABELS + (blank == 0), (7, 7, 3, 5), (4, 2, 1, 0), blank, reduction
        )
        for reduction, blank in product(("mean", "sum", "none"), (0, 4))
    },
    "ctc of tensors": lambda d: F.ctc_loss(
        d(7, 4, 5).log_softmax(2), LABELS, torch.tensor([7, 7, 3, 5]), torch.tensor([4, 2, 1, 0]), blank=4
    ),
    "ctc of one text": lambda d: F.ctc_loss(
        d(7, 2, 5).log_softmax(2), torch.tensor([1, 2, 3]), torch.tensor([7, 6]), torch.tensor([1, 2])
    ),
    "ctc without a path": lambda d: F.ctc_loss(
        d(2, 1, 5).log_softmax(2), torch.tensor([[1, 1]]), (2,), (2,), zero_infinity=True
    ),
}  # fmt: skip


def outcome(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the result of a call, and the gradients of its operands."""
    operands: list[torch.Tensor] = []
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> torch.Tensor:
        operands.append(torch.from_numpy(rng.standard_normal(shape, np.float32)).to(dtype).requires_grad_())
        return operands[-1]

    result = CALLS[name](draw)
    weights = torch.linspace(1, 2, result.numel(), dtype=torch.float64).to(result.dtype).reshape(result.shape)
    return result, list(torch.autograd.grad((result * weights).sum(), operands))


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_are_near_f64(name: str) -> None:
    exact, of_exact = outcome(name, torch.float64)
    plain, _ = outcome(name, torch.float32)
    with same_bits():
        found, gradients = outcome(name, torch.float32)
    assert (found.dtype, found.shape) == (plain.dtype, plain.shape)
    for ours, theirs in zip((found, *gradients), (exact, *of_exact), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-5, atol=2e-5)


def test_a_lost_path_is_infinite() -> None:
    with same_bits():
        loss = F.ctc_loss(torch.randn(2, 1, 5).log_softmax(2), torch.tensor([[1, 1]]), (2,), (2,), reduction="none")
    assert loss.item() == float("inf")


def test_ctc_and_hypot_of_numbers_that_f32_hardly_has() -> None:
    with same_bits():
        small, large = (torch.hypot(torch.tensor(x), torch.tensor(x)) for x in (1e-40, 2e38))
        assert (small / 1e-40 - 2**0.5).abs() < 1e-4
        assert large == torch.tensor(2e38 * 2**0.5)
        certain = torch.full((4, 1, 3), -float("inf"))
        certain[:, :, 1] = 0
        certain.requires_grad_()
        loss = F.ctc_loss(certain, torch.tensor([[1]]), (4,), (1,))
        loss.backward()
    assert loss == 0
    assert certain.grad is not None
    assert certain.grad.isfinite().all()


def test_a_random_leaky_relu_draws_its_slopes() -> None:
    x = torch.randn(50, 60, requires_grad=True)
    with same_bits():
        y = F.rrelu(x, 0.1, 0.3, training=True)
        y.sum().backward()
        assert torch.equal(F.rrelu(x, 0.1, 0.3), F.leaky_relu(x, 0.2))
    assert x.grad is not None
    assert torch.equal(x.grad[x > 0], torch.ones_like(x[x > 0]))
    slopes = x.grad[x <= 0]
    assert 0.1 <= slopes.min() < 0.11
    assert 0.29 < slopes.max() <= 0.3
    torch.testing.assert_close(y, x * x.grad)


def test_a_label_without_a_probability_raises() -> None:
    """PyTorch reads other memory."""
    with same_bits(), pytest.raises((RuntimeError, IndexError)):
        F.ctc_loss(torch.ones(3, 1, 5), torch.tensor([[5]]), (3,), (1,))


WRONG: dict[str, Callable[[], object]] = {
    "cross": lambda: torch.linalg.cross(torch.ones(4), torch.ones(4)),
    "addbmm": lambda: torch.addbmm(torch.ones(2, 2), torch.ones(3, 2, 4), torch.ones(2, 4, 2)),
    "addr": lambda: torch.addr(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2)),
    "offsets": lambda: F.embedding_bag(torch.tensor([1, 2]), torch.ones(5, 8), torch.tensor([0, 3])),
    "the first offset": lambda: F.embedding_bag(torch.tensor([1, 2]), torch.ones(5, 8), torch.tensor([1])),
    "one weight for two indices": lambda: torch.embedding_bag(
        torch.ones(5, 8), torch.tensor([1, 2]), torch.tensor([0]), False, 0, False, torch.ones(1)
    ),
    "an index": lambda: F.embedding_bag(torch.tensor([[1, 7]]), torch.ones(5, 8)),
    "lengths": lambda: F.ctc_loss(torch.ones(3, 1, 5), torch.tensor([[1]]), (4,), (1,)),
    "a negative length": lambda: F.ctc_loss(torch.ones(3, 1, 5), torch.tensor([[1]]), (-1,), (1,)),
    "too few labels": lambda: F.ctc_loss(torch.ones(3, 2, 5), torch.tensor([[1], [2]]), (3, 3), (2, 2)),
    "too few texts": lambda: F.ctc_loss(torch.ones(3, 2, 5), torch.tensor([[1, 2]]), (3, 3), (2, 2)),
    "no steps": lambda: F.ctc_loss(torch.ones(0, 1, 5), torch.tensor([[1]]), (0,), (1,)),
    "cross of two types": lambda: torch.linalg.cross(torch.ones(3), torch.ones(3).double()),
    "cross along no axis": lambda: torch.linalg.cross(torch.ones(3), torch.ones(3), dim=7),
    "addbmm of four axes": lambda: torch.addbmm(torch.ones(2, 2), torch.ones(3, 2, 1, 4), torch.ones(3, 4, 2)),
    "renorm of a vector": lambda: torch.renorm(torch.ones(4), 2, 0, 1.0),
    "renorm along no axis": lambda: torch.renorm(torch.ones(4, 2), 2, 5, 1.0),
    "one text of another length": lambda: F.ctc_loss(torch.ones(3, 1, 5), torch.tensor([1, 2]), (3,), (1,)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_raise_as_in_pytorch(name: str) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        WRONG[name]()
    with same_bits(), pytest.raises((RuntimeError, IndexError)):
        WRONG[name]()


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("scale", [1, 1e30, 1e-30])
@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (2, 3, 4, 7), (1, 1), (3, 1), (1, 3), (0, 3), (3, 0), (2, 0, 0)])
def test_factors_are_those_of_lapack(shape: tuple[int, ...], scale: float, mode: str) -> None:
    matrix = torch.from_numpy(np.random.default_rng(0).standard_normal(shape, np.float32)) * scale
    expected = torch.linalg.qr(matrix, mode)
    with same_bits():
        found = torch.linalg.qr(matrix, mode)
    for ours, theirs, size in zip(found, expected, (1, scale), strict=True):
        torch.testing.assert_close(ours / size, theirs / size, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("last", [0, 1])
def test_orthogonal_weights_have_the_same_bits_on_more_threads(last: int) -> None:
    found = []
    for threads in (1, 3):
        torch.manual_seed(0)
        with same_bits(), convgrad.threads(threads):
            weight = torch.empty(40, 30 + 20 * last)
            torch.nn.init.orthogonal_(weight)
        found.append(weight)
    assert torch.equal(*found)
    rows = weight if last else weight.T
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(rows)), rtol=0, atol=1e-5)


IN_16_BITS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "logit": lambda x: torch.logit(x / 1024),
    "renorm": lambda x: torch.renorm(x * 32, 2, 0, 1.0),
    "addr": lambda x: torch.addr(x, x[:, 0] / 64, x[0] / 64),
}


@pytest.mark.parametrize("name", IN_16_BITS)
def test_16_bits_are_computed_in_f32(name: str) -> None:
    """Norms, and the gradient of a logarithm of odds, exceed f16 in between."""
    x = torch.linspace(100, 1023, 1200).reshape(3, 400).half()

    def outcome(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.detach().requires_grad_()
        y = IN_16_BITS[name](x)
        return y, torch.autograd.grad(y.float().sum(), x)[0]

    with same_bits():
        found = outcome(x)
    for ours, exact in zip(found, outcome(x.double()), strict=True):
        assert ours.dtype == torch.float16
        torch.testing.assert_close(ours.double(), exact, rtol=6e-3, atol=1e-3)


COMPLEX: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cross": lambda x: torch.linalg.cross(x, x),
    "addr": lambda x: torch.addr(x, x[0], x[0]),
    "addbmm": lambda x: torch.addbmm(x, x[None], x[None]),
    "deg2rad": torch.deg2rad,
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_refused(name: str) -> None:
    with same_bits(), pytest.raises(UnsupportedError, match=name):
        COMPLEX[name](torch.ones(3, 3, dtype=torch.complex64))


def test_addr_has_the_types_of_pytorch() -> None:
    x, ints = torch.ones(2, 3), torch.arange(2)
    for call in (
        lambda: torch.addr(x, ints, x[0]),
        lambda: torch.addr(x, x[:, 0].bfloat16(), x[0]),
        lambda: torch.addr(x.double(), x[:, 0].double(), x[0].double()),
    ):
        plain = call()
        with same_bits(), torch.autocast("cpu", dtype=torch.bfloat16):
            found = call()
        assert torch.equal(plain, found)
        assert plain.dtype == found.dtype


def test_distances_of_vectors_without_numbers_are_0() -> None:
    with same_bits():
        for p in (1.0, 2.0, float("inf")):
            assert torch.equal(torch.cdist(torch.ones(2, 0), torch.ones(3, 0), p), torch.zeros(2, 3))
            assert torch.equal(F.pdist(torch.ones(3, 0), p), torch.zeros(3))


def test_logit_of_bools() -> None:
    with same_bits():
        assert torch.logit(torch.tensor([True, False])).tolist() == [float("inf"), -float("inf")]


def test_the_gradient_of_logit_is_infinite_at_0_and_1() -> None:
    x = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
    with same_bits():
        torch.logit(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [float("inf"), 4.0, float("inf")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_ctc_in_16_bits_is_refused(dtype: torch.dtype) -> None:
    with same_bits(), pytest.raises(UnsupportedError, match="_ctc_loss has no specified order"):
        F.ctc_loss(torch.ones(3, 1, 5, dtype=dtype), torch.tensor([[1]]), (3,), (1,))

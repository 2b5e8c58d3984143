"""CTC loss: the stated bounds, against sums over all paths in extended precision."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product

import numpy as np
import pytest
import torch

from convgrad import threads
from convgrad.torch import same_bits
from tests.training.digests import digest

pytestmark = pytest.mark.usefixtures("installed")
LENGTHS = [(7, 3), (7, 0), (5, 2), (1, 1), (60, 20), (400, 9), (3, 3), (0, 0)]  # steps and labels of each text
LOW = np.longdouble(-1e30)


def solved(log_probs: np.ndarray, labels: list[int], grad: float) -> tuple[np.longdouble, np.ndarray]:
    """Return the loss of a text and the gradient of ``log_probs``, by sums over the states of all paths."""
    states = [0, *[state for label in labels for state in (label, 0)]]
    emissions = log_probs.astype(np.longdouble)[:, states]

    def paths(e: np.ndarray, of: list[int]) -> np.ndarray:
        scores = np.full((len(e), len(of)), LOW)
        scores[0, :2] = e[0, :2]
        for t in range(1, len(e)):
            for s in range(len(of)):
                skips = s > 1 and of[s] not in (0, of[s - 2])
                sources = [scores[t - 1, s], scores[t - 1, s - 1] if s else LOW, scores[t - 1, s - 2] if skips else LOW]
                scores[t, s] = np.logaddexp.reduce(np.array(sources)) + e[t, s]
        return scores

    before, after = paths(emissions, states), paths(emissions[::-1, ::-1], states[::-1])[::-1, ::-1]
    loss = -np.logaddexp.reduce(before[-1, -2:])
    shares = np.exp(before + after - emissions + loss)
    gradient = np.zeros(log_probs.shape, np.longdouble)
    for s, state in enumerate(states):
        gradient[:, state] -= grad * shares[:, s]
    return loss, gradient


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_losses_and_gradients_are_within_their_bounds(scale: float) -> None:
    generator = torch.Generator().manual_seed(5)
    time, most = (max(column) for column in zip(*LENGTHS, strict=True))
    log_probs = (torch.randn(time, len(LENGTHS), 5, generator=generator) * scale).log_softmax(2).requires_grad_()
    labels = torch.randint(1, 5, (len(LENGTHS), most), generator=generator)
    labels[6, :3] = torch.tensor([1, 2, 3])  # as many steps as labels, so none may repeat
    steps, lengths = ([*column] for column in zip(*LENGTHS, strict=True))
    grad, u = torch.rand(len(LENGTHS), generator=generator), 2.0**-24
    found = {}
    for count in (1, 2):
        with same_bits(), threads(count):
            losses = torch.nn.functional.ctc_loss(log_probs, labels, steps, lengths, reduction="none")
            (gradient,) = torch.autograd.grad(losses, log_probs, grad)
        found[count] = digest([losses, gradient])
    assert found[1] == found[2]
    for n, (count, length) in enumerate(LENGTHS):
        if not count:
            assert (losses[n].item(), gradient[:, n].any().item()) == (0.0, False)
            continue
        values = log_probs.detach()[:count, n].numpy()
        loss, expected = solved(values, labels[n, :length].tolist(), float(grad[n]))
        assert abs(losses[n].item() - loss) <= u * abs(loss) + 2.0**-46 * (1 + abs(loss)) * count
        error = abs(gradient[:count, n].numpy() - expected)
        assert (error <= abs(expected) * (u * (4 + 2 * length) + 2.0**-44 * (1 + abs(loss)) * count) + 2.0**-149).all()
        assert not gradient[count:, n].any()


@pytest.mark.parametrize("outside", ["loss", "gradient"])
def test_one_half_may_be_outside(outside: str) -> None:
    x = torch.randn(20, 3, 5, requires_grad=True)
    arguments = torch.randint(1, 5, (3, 6)), [20, 13, 9], [6, 5, 1]
    with nullcontext() if outside == "loss" else same_bits():
        loss = torch.nn.functional.ctc_loss(x.log_softmax(2), *arguments)
    with nullcontext() if outside == "gradient" else same_bits():
        (found,) = torch.autograd.grad(loss, x)
    loss = torch.nn.functional.ctc_loss(x.double().log_softmax(2), *arguments)
    torch.testing.assert_close(found, torch.autograd.grad(loss, x)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("zero_infinity", [True, False])
def test_special_gradients_are_those_of_pytorch(zero_infinity: bool) -> None:
    """The first text is too long for its steps, and the gradient of the last loss is NaN."""
    logits, which = torch.randn(12, 3, 5), {}
    labels, steps, lengths = torch.tensor([[1, 1, 1], [1, 2, 3], [1, 2, 3]]), [4, 12, 9], [3, 3, 2]
    grad = torch.tensor([1.0, 0.5, torch.nan])
    for name in ("plain", "ours"):
        x = logits.clone().requires_grad_()
        with same_bits() if name == "ours" else nullcontext():
            losses = torch.nn.functional.ctc_loss(
                x.log_softmax(2), labels, steps, lengths, reduction="none", zero_infinity=zero_infinity
            )
            (gradient,) = torch.autograd.grad(losses, x, grad)
        which[name] = gradient.isnan().any(2), gradient[:, 1], losses.isinf()
    assert torch.equal(which["ours"][0], which["plain"][0])
    torch.testing.assert_close(which["ours"][1], which["plain"][1], rtol=1e-4, atol=1e-6)
    assert torch.equal(which["ours"][2], which["plain"][2])


@pytest.mark.parametrize("shape", [(2, 0), (2, 1), (2, 4), (0,)])
def test_texts_may_be_empty(shape: tuple[int, ...]) -> None:
    log_probs = torch.randn(6, 2, 5).log_softmax(2).requires_grad_()
    arguments = torch.ones(shape, dtype=torch.long), [6, 5], [0, 0]
    with same_bits():
        _, paths = torch._ctc_loss(log_probs, *arguments)
        losses = torch.nn.functional.ctc_loss(log_probs, *arguments, reduction="none")
        (gradient,) = torch.autograd.grad(losses.sum(), log_probs)
    assert paths.shape == (2, 6, 1)
    expected = -log_probs[:, :, 0].detach().cumsum(0)
    torch.testing.assert_close(losses, torch.stack([expected[5, 0], expected[4, 1]]))
    assert (gradient[:, :, 0] == torch.tensor([[-1.0, -1.0]] * 5 + [[-1.0, 0.0]])).all()


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("labels", [0, 1, 40])
def test_threads_pools_and_slices_change_no_bit(batch: int, labels: int) -> None:
    """Rows of the batch are cut among threads, and each row has all steps."""
    x, grad = torch.randn(300, batch, 50), torch.rand(batch)
    texts, steps = torch.randint(1, 50, (batch, labels)), torch.full((batch,), 300)

    def found(rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        logits = x[:, rows].clone().requires_grad_()
        arguments = texts[rows], steps[rows], torch.full_like(steps, labels)[rows]
        losses = torch.nn.functional.ctc_loss(logits.log_softmax(2), *arguments, reduction="none")
        return losses.detach(), torch.autograd.grad(losses, logits, grad[rows])[0]

    digests, slices = set(), []
    for count, kind in product((1, 2, 3), ("own", "openmp")):
        with same_bits(), threads(count, pool=kind):
            digests.add(digest(list(found(slice(None)))))
            slices = [found(slice(row, row + 1)) for row in range(batch)]
            losses, gradients = zip(*slices, strict=True)
            digests.add(digest([torch.cat(losses), torch.cat(gradients, 1)]))
    assert len(digests) == 1

"""CTC loss and its gradient: the logarithms of the probabilities of paths, step by step, in f64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from convgrad.spec.elementwise.wide import NEVER
from convgrad.torch.training.row import LOW, SEQUENTIAL, SUMMED, row
from convgrad.torch.training.tensors import elements, update_steps

LOST = 0.1 * NEVER  # a logarithm below this one is that of a path that does not exist
Lengths: TypeAlias = Sequence[int] | Tensor


class _Paths(NamedTuple):
    """The states of paths: blank, label 1, blank, label 2, ..., blank. All tensors begin with the batch.

    ``skips`` is 1 for states to which a path may come from the last label, else 0.
    """

    states: Tensor
    skips: Tensor
    steps: Tensor
    lengths: Tensor


def _paths(log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, blank: int) -> _Paths:
    """Return the paths that spell each target."""
    (time, batch, _), needed = log_probs.shape, int(max(target_lengths, default=0))
    longest = max(needed, 1)
    steps, lengths = (torch.as_tensor(numbers).long() for numbers in (input_lengths, target_lengths))
    if not log_probs.numel():
        raise RuntimeError("ctc_loss: log_probs must not be empty")
    if not steps.shape == lengths.shape == (batch,) or ((steps > time) | (steps < 0) | (lengths < 0)).any():
        raise RuntimeError(f"ctc_loss: lengths must fit log_probs {log_probs.shape}; got {steps}, {lengths}")
    if targets.dim() == 1:
        targets = torch.nn.utils.rnn.pad_sequence(list(targets.split(lengths.tolist())), True)
    if targets.shape[0] != batch or targets.shape[1] < needed:
        raise RuntimeError(f"ctc_loss: targets must have {batch} rows of {needed} labels or more; got {targets.shape}")
    targets = functional.pad(targets, (0, max(0, longest - targets.shape[1])))
    states = torch.full((batch, 2 * longest + 1), blank)
    within = torch.arange(longest) < lengths.unsqueeze(1)
    states[:, 1::2] = torch.where(within, targets[:, :longest].long(), blank)
    skips = torch.zeros(states.shape)
    skips[:, 3::2] = (states[:, 3::2] != states[:, 1:-2:2]).float()
    return _Paths(states, skips, steps, lengths)


def _scores(emissions: Tensor, skips: Tensor) -> Tensor:
    """Return the logarithms of the probabilities of all paths to each state, at each step (steps, batch, states).

    ``emissions`` are the logarithms of the probabilities of the states' labels at each step.
    """
    time, batch, states = emissions.shape
    scores = torch.full((time, batch, states + 2), NEVER, dtype=torch.float64)  # two states before the first one
    scores[0, :, 2:4] = emissions[0, :, :2]
    sources = [(scores[0, :, first : first + states], scores.stride(0)) for first in (2, 1, 0)]
    if time > 1:
        target = scores[1, :, 2:], scores.stride(0)
        update_steps("ctc_step", time - 1, target, *sources, (skips, 0), (emissions[1], emissions.stride(0)))
    return scores[:, :, 2:]


def _losses(paths: _Paths, scores: Tensor) -> Tensor:
    """Return the negative logarithms of the probabilities of all paths in f64, infinite if there is none."""
    steps, lengths = paths.steps, paths.lengths
    of_last_step = scores[(steps - 1).clamp(min=0), torch.arange(len(steps))]
    last, before = (of_last_step.gather(1, (2 * lengths - back).clamp(min=0).unsqueeze(1))[:, 0] for back in (0, 1))
    total = torch.where(lengths > 0, elements("logaddexp", last, before), last)
    is_lost = (total < LOST) | (steps == 0) & (lengths > 0)
    losses = (-total).masked_fill(is_lost, math.inf)
    return losses.masked_fill((steps == 0) & (lengths == 0), 0.0)


class _Forward(NamedTuple):
    """The paths of all targets, the logarithms of their labels' probabilities, and what follows from these."""

    paths: _Paths
    emissions: Tensor
    scores: Tensor
    losses: Tensor


def _forward(
    log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, blank: int
) -> _Forward:
    """Return the losses, and what the gradient needs of them."""
    paths = _paths(log_probs, targets, input_lengths, target_lengths, blank)
    emissions = log_probs.clamp(min=NEVER).gather(2, paths.states.expand(len(log_probs), -1, -1))
    scores = _scores(emissions, paths.skips)
    return _Forward(paths, emissions, scores, _losses(paths, scores))


@row(
    "_ctc_loss",
    "_ctc_loss.Tensor",
    formula="-logaddexp of the logarithms of all paths, step by step, in f64",
    order=SEQUENTIAL,
    bound="u abs(result) + 2^-46 (1 + abs(result)) per step",
    types=SUMMED - LOW,
)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the negative logarithm of the probability of all paths that spell each target, and those of all states."""
    paths, _, scores, losses = _forward(log_probs, targets, input_lengths, target_lengths, blank)
    losses = losses.masked_fill(losses == math.inf, 0.0) if zero_infinity else losses
    scores = scores[:, :, : 2 * int(paths.lengths.max()) + 1]
    return losses.float(), scores.masked_fill(scores < LOST, -math.inf).transpose(0, 1).float()


@row(
    "_ctc_loss_backward",
    "_ctc_loss_backward.Tensor",
    formula="-grad * the sum of the probabilities of the states with a label, of all paths; without PyTorch's term "
    "exp(log_probs), which the gradient of log_softmax cancels; NaN for infinite losses, 0 with zero_infinity",
    order=SEQUENTIAL,
    bound="abs(result) (u (3 + number of states) + 2^-44 (1 + loss) per step)",
    types=SUMMED - LOW,
)
def ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    neg_log_likelihood: Tensor,
    log_alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    """Return the gradient of the logarithms. Paths from the end are those from the begin of the reversed problem."""
    paths, emissions, scores, losses = _forward(log_probs, targets, input_lengths, target_lengths, blank)
    time, batch, states = emissions.shape
    images, at = torch.arange(batch).unsqueeze(1), torch.arange(states)
    step = paths.steps - 1 - torch.arange(time).unsqueeze(1)  # (time, batch): the step as counted from the end
    state = 2 * paths.lengths.unsqueeze(1) - at  # (batch, states)
    reverse = step.clamp(min=0).unsqueeze(2), images, state.clamp(min=0)
    skips = torch.cat([paths.skips, torch.zeros(batch, 2)], 1)[images, (state + 2).clamp(min=0)]
    after = _scores(emissions[reverse].contiguous(), skips)[reverse]
    is_on = (step >= 0).unsqueeze(2) & (state >= 0) & (losses != math.inf).unsqueeze(1)
    shares = elements("ctc_share", scores, after, emissions, losses.unsqueeze(1).expand(batch, states).contiguous())
    gradient = torch.where(is_on, -shares.float() * grad.unsqueeze(1), 0.0)
    result = torch.zeros_like(log_probs).scatter_add_(2, paths.states.expand(time, -1, -1), gradient)
    is_unknown = (step >= 0) & (losses == math.inf) & (not zero_infinity)  # the gradient of an infinite loss
    return result.masked_fill_(is_unknown.unsqueeze(2), math.nan)

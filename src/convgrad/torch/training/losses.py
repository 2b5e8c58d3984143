"""Losses and softmax: elements by IEEE operations or elementary functions, then sums in one order."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from convgrad.torch.training.channels import ChannelProgram, ChannelView, Floats, rows_of
from convgrad.torch.training.functions import exp64, log1p64, log64
from convgrad.torch.training.row import SECTIONS, UnservedError, common_type, row
from convgrad.torch.training.sums import products, rounded, total
from convgrad.torch.training.tensors import allocated, elements

_NONE, _MEAN = 0, 1  # values of ATen's `reduction`; 2 is the sum
_REDUCED = "mean or sum of the losses"
_DEPTH = "h v sum(abs(losses)), / count for the mean, + 3 u of each loss + u abs(result)"


# -- softmax -------------------------------------------------------------------------------------------------------

_EXPONENTIALS = "e = exp(self - max) by f32 operations, s = sum of e"


def _rows(x: Tensor, dim: int) -> ChannelView | None:
    """Return a tensor whose rows are the elements along a dimension; None if this is not the last dimension."""
    dim %= max(x.dim(), 1)
    if not x.dim() or x.shape[dim:].numel() != x.shape[dim]:
        return None
    return rows_of(x, x.numel() // x.shape[dim], x.shape[dim])


def _exponentials(self: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest elements along a dimension, e = exp(self - largest), and the sums of e in f64."""
    largest = self.amax(dim, keepdim=True).float()
    e = elements("exp_of_difference", self.float(), largest)
    return largest, e, total(e, dim, True)


def _exponentials_of_rows(program: ChannelProgram, rows: ChannelView) -> tuple[Tensor, Tensor, Floats]:
    """Return the largest element of each row, e = exp(x - largest), and the sums of e in f64."""
    largest = program.largest(rows)
    e = allocated(torch.empty_like(rows.tensor, dtype=torch.float32))
    sums = program.sums_of("exp_of_difference", rows, coefficients=(largest,), products=False, terms=e)
    return largest, e, sums


@row(
    "_log_softmax",
    formula=f"{_EXPONENTIALS}; (self - max) - log(s), log(s) in f64, then rounded to f32",
    order=SECTIONS,
    bound="(6 + abs(self - max) + abs(log(s)) + abs(result) + mean of abs(self - max) with weights softmax) u",
)
def log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return the logarithm of softmax along a dimension."""
    to = torch.float32 if half_to_float else self.dtype
    if not self.numel():
        return torch.empty_like(self, dtype=to)
    rows = _rows(self, dim)
    if rows is not None:
        program = ChannelProgram.by_channel(rows)
        largest, _, sums_of_rows = _exponentials_of_rows(program, rows)
        logs = program.coefficients("log64", (rows.shape[1],), [sums_of_rows[0]], 1)
        result = allocated(torch.empty_like(rows.tensor, dtype=to))
        program.mapped("difference_of_two", rows, rows.tensor, coefficients=(largest, *logs), out=result)
        program.run()
        return result
    largest, _, sums = _exponentials(self, dim)
    return elements("difference_of_two", self.float(), largest, log64(sums).float()).to(to)


@row(
    "_log_softmax_backward_data",
    formula="grad_output - exp(output) * (sum of grad_output), fused; exp by f32 operations",
    order=SECTIONS,
    bound="3 u exp(output) abs(sum of grad_output) + u abs(result) + h v exp(output) sum(abs(grad_output))",
)
def log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """Return the gradient of log_softmax from its output."""
    if not grad_output.numel():
        return torch.empty_like(grad_output)
    if rows := _rows(grad_output, dim):
        return _gradient_of_rows("log_softmax_backward", rows, output, input_dtype, products=False)
    sums = total(grad_output, dim, True).float()
    return elements("log_softmax_backward", grad_output.float(), output.float(), sums).to(input_dtype)


def _gradient_of_rows(name: str, rows: ChannelView, output: Tensor, to: torch.dtype, *, products: bool) -> Tensor:
    """Return a gradient from the sums of g, or those of its products with the output, of each row."""
    program, output = ChannelProgram.by_channel(rows), output.contiguous()
    sums = program.sums_of("products", rows, output, plain=not products, products=products)
    coefficients = (program.rounded(sums[0]),)
    result = allocated(torch.empty_like(rows.tensor, dtype=to))
    program.mapped(name, rows, rows.tensor, output, coefficients=coefficients, out=result)
    program.run()
    return result


@row(
    "_softmax",
    formula=f"{_EXPONENTIALS}; e / (s rounded to f32)",
    order=SECTIONS,
    bound="(6 + abs(self - max) + mean of abs(self - max) with weights result) u result",
)
def softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return softmax along a dimension."""
    to = torch.float32 if half_to_float else self.dtype
    if not self.numel():
        return torch.empty_like(self, dtype=to)
    rows = _rows(self, dim)
    if rows is None:
        _, e, sums = _exponentials(self, dim)
        return elements("quotient", e, sums.float(), out=e).to(to)
    program = ChannelProgram.by_channel(rows)
    _, e, of_rows = _exponentials_of_rows(program, rows)
    coefficients = (program.rounded(of_rows[0]),)
    result = e if to == torch.float32 else allocated(torch.empty_like(e, dtype=to))
    program.mapped("quotient", rows._replace(tensor=e), e, coefficients=coefficients, out=result)
    program.run()
    return result


@row(
    "_softmax_backward_data",
    formula="output * (grad_output - (sum of grad_output * output, rounded to f32))",
    order=SECTIONS,
    bound="abs(output) (u abs(sum) + h v sum(abs(grad_output output))) + 2 u abs(result)",
)
def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """Return the gradient of softmax from its output."""
    if not grad_output.numel():
        return torch.empty_like(grad_output)
    if rows := _rows(grad_output, dim):
        return _gradient_of_rows("softmax_backward", rows, output, input_dtype, products=True)
    sums = products(grad_output, output, dim, True).float()
    return elements("softmax_backward", grad_output.float(), output.float(), sums).to(input_dtype)


# -- classes -------------------------------------------------------------------------------------------------------


def _places(labels: Tensor, ignore_index: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return which labels of the rows of ``x`` are used, and the classes of the labels, 0 for the others."""
    if labels.shape != (len(x), *x.shape[2:]):
        raise RuntimeError(f"size mismatch (got input: {list(x.shape)}, target: {list(labels.shape)})")
    if labels.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"nll_loss: labels must be int64 or uint8; got {labels.dtype}")
    used = labels != ignore_index
    index = torch.where(used, labels, 0).to(torch.int64)
    wrong = index[(index < 0) | (index >= x.shape[1])]
    if wrong.numel():
        raise IndexError(f"Target {int(wrong[0])} is out of bounds.")
    return used, index


def _weights(used: Tensor, index: Tensor, weight: Tensor | None, classes: int) -> Tensor | None:
    """Return the weight of each label, 0 for labels that are not used; None if all others have weight 1."""
    if weight is None:
        return None
    if weight.shape != (classes,):
        raise RuntimeError(f"nll_loss: weight must have one value per class, {classes}; got {tuple(weight.shape)}")
    return torch.where(used, weight.float()[index], 0)


def _sum_of_weights(used: Tensor, weights: Tensor | None) -> Tensor:
    """Return the sum of the weights in f64."""
    return used.sum().double() if weights is None else total(weights)  # the former is a sum of integers


@row(
    "nll_loss_forward",
    "nll_loss2d_forward",
    formula="sum of -(weight * self) at the targets; the mean is divided by the sum of the weights",
    order=SECTIONS,
    bound=_DEPTH,
)
def nll_loss(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Return the negative log likelihood, and the sum of the targets' weights."""
    x, labels = (self, target) if self.dim() > 1 else (self.unsqueeze(0), target.reshape(1))
    used, index = _places(labels, ignore_index, x)
    weights = _weights(used, index, weight, x.shape[1])
    losses = -x.float().gather(1, index.unsqueeze(1)).squeeze(1)
    losses = torch.where(used, losses if weights is None else losses * weights, 0)
    if reduction == _NONE:
        return losses.reshape(target.shape).to(self.dtype), self.new_zeros(())
    loss, all_weights = total(losses), _sum_of_weights(used, weights)
    loss = loss / all_weights if reduction == _MEAN else loss
    return rounded(loss, self.dtype), rounded(all_weights, self.dtype)


@row(
    "nll_loss_backward",
    "nll_loss2d_backward",
    formula="-(weight * grad_output) at the targets, 0 elsewhere; the mean is divided by the sum of the weights",
    order=SECTIONS,
    bound="(3 u + h v) abs(result), if no weight is negative",
)
def nll_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """Return the gradient of the negative log likelihood.

    The sum of the weights is added again, because ``total_weight`` has the type of ``self``, and is infinite for 65,520
    labels in f16.
    """
    x, labels = (self, target) if self.dim() > 1 else (self.unsqueeze(0), target.reshape(1))
    used, index = _places(labels, ignore_index, x)
    gradient = grad_output.float() if reduction == _NONE else grad_output.float().expand(labels.shape)
    weights = _weights(used, index, weight, x.shape[1])
    gradient = gradient if weights is None else gradient * weights
    if reduction == _MEAN:
        gradient = gradient / _sum_of_weights(used, weights).float()
    gradient = torch.where(used, -gradient.reshape(labels.shape), 0).to(self.dtype)
    return torch.zeros_like(x).scatter(1, index.unsqueeze(1), gradient.unsqueeze(1)).reshape(self.shape)


# -- differences ---------------------------------------------------------------------------------------------------


def _reduce(losses: Tensor, reduction: int, to: torch.dtype) -> Tensor:
    """Return the losses in the type ``to``, or their mean or sum."""
    if reduction == _NONE:
        return losses.to(to)
    loss = total(losses)
    return rounded(loss / losses.numel() if reduction == _MEAN else loss, to)


def _spread(grad_output: Tensor, number: int, reduction: int) -> Tensor:
    """Return the gradient of each loss."""
    return grad_output.float() / number if reduction == _MEAN else grad_output.float()


def _difference_loss(
    name: str,
    loss: Callable[[Tensor, float], Tensor],
    slope: Callable[[Tensor, float], Tensor],
    formulas: tuple[str, str],
    default: float,
) -> None:
    """Add the two rows of a loss of d = self - target with a parameter; ``slope`` is its derivative by d."""

    def forward(self: Tensor, target: Tensor, reduction: int = _MEAN, parameter: float = default) -> Tensor:
        if not parameter >= 0:
            raise RuntimeError(f"{name} does not support negative values; got {parameter}")
        to, (x, y) = common_type(self, target)
        return _reduce(loss(x - y, parameter), reduction, to)

    def backward(
        grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, parameter: float = default
    ) -> Tensor:
        to, (x, y) = common_type(self, target)
        return (_spread(grad_output, x.numel(), reduction) * slope(x - y, parameter)).to(to)

    formula = f"d = self - target; {formulas[0]}; {_REDUCED}"
    row(name, formula=formula, order=SECTIONS, bound=_DEPTH)(forward)
    gradient = f"(grad_output, / count for the mean) * {formulas[1]}"
    row(f"{name}_backward", formula=gradient, bound="4 u abs(result)")(backward)


_difference_loss("mse_loss", lambda d, _: d * d, lambda d, _: d * 2, ("d * d", "(2 * d)"), 0.0)
_difference_loss(
    "smooth_l1_loss",
    lambda d, beta: torch.where(d.abs() < beta, (0.5 * d * d) / (beta or 1.0), d.abs() - 0.5 * beta),
    lambda d, beta: torch.where(d.abs() < beta, d / (beta or 1.0), torch.where(d.isnan(), d, d.sign())),
    ("0.5 * d * d / beta if abs(d) < beta, else abs(d) - 0.5 * beta", "(d / beta, or the sign of d)"),
    1.0,
)
_difference_loss(
    "huber_loss",
    lambda d, delta: torch.where(d.abs() <= delta, 0.5 * d * d, delta * (d.abs() - 0.5 * delta)),
    lambda d, delta: d.clamp(-delta, delta),
    ("0.5 * d * d if abs(d) <= delta, else delta * (abs(d) - 0.5 * delta)", "(d from -delta to delta)"),
    1.0,
)


@row(
    "soft_margin_loss",
    formula=f"log(1 + exp(-target * self)) by f32 operations; {_REDUCED}",
    order=SECTIONS,
    bound=_DEPTH,
)
def soft_margin_loss(self: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    """Return the logistic loss of targets 1 and -1."""
    to, (x, y) = common_type(self, target)
    return _reduce(elements("softplus", -y * x, 1.0, math.inf), reduction, to)


@row(
    "soft_margin_loss_backward",
    formula="(-target * (grad_output, / count for the mean)) * sigmoid(-target * self)",
    bound="4 ulp",
)
def soft_margin_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Return the gradient of soft_margin_loss."""
    to, (x, y) = common_type(self, target)
    return elements("glu", -y * _spread(grad_output, x.numel(), reduction), -y * x).to(to)


# -- two classes ---------------------------------------------------------------------------------------------------


def _check_alike(self: Tensor, target: Tensor) -> None:
    """Refuse tensors of two types, as PyTorch does, and of two shapes, of which ATen's kernel reads some elements."""
    if self.dtype != target.dtype:
        raise RuntimeError(f"binary_cross_entropy: found {target.dtype} as target, but expected {self.dtype}")
    if self.shape != target.shape:
        raise UnservedError(
            f"computes tensors of one shape; got {tuple(self.shape)} and {tuple(target.shape)}",
            "Use torch.broadcast_tensors",
        )


@row(
    "binary_cross_entropy",
    formula="-(target * max(log(self), -100) + (1 - target) * max(log(1 - self), -100)) * weight, in f64, "
    f"then rounded; {_REDUCED}",
    order=SECTIONS,
    bound=_DEPTH,
)
def binary_cross_entropy(self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN) -> Tensor:
    """Return the cross entropy of probabilities and targets from 0 to 1."""
    _check_alike(self, target)
    for title, tensor in {"input": self, "target": target}.items():
        if not ((tensor >= 0) & (tensor <= 1)).all():
            raise RuntimeError(f"binary_cross_entropy: all elements of {title} should be between 0 and 1")
    x, t = self.to(torch.float64), target.to(torch.float64)
    losses = -(t * log64(x).clamp(min=-100) + (1 - t) * log1p64(-x).clamp(min=-100))
    losses = losses if weight is None else losses * weight.expand(losses.shape)
    return _reduce(losses.to(torch.float32), reduction, self.dtype)


@row(
    "binary_cross_entropy_backward",
    formula="(grad_output, / count for the mean) * (self - target) / max((1 - self) * self, 1e-12) * weight",
    bound="6 u abs(result)",
)
def binary_cross_entropy_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    """Return the gradient of binary_cross_entropy with respect to the probabilities."""
    _check_alike(self, target)
    x, t = self.float(), target.float()
    gradient = _spread(grad_output, x.numel(), reduction) * (x - t) / ((1 - x) * x).clamp(min=1e-12)
    return (gradient if weight is None else gradient * weight.float().expand(gradient.shape)).to(self.dtype)


@row(
    "binary_cross_entropy_with_logits",
    formula="((1 - target) * self + p * (log1p(exp(-abs(self))) + max(-self, 0))) * weight, in f64, then rounded; "
    f"p = 1 + (pos_weight - 1) * target; {_REDUCED}",
    order=SECTIONS,
    bound=_DEPTH,
)
def binary_cross_entropy_with_logits(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    """Return the cross entropy of sigmoid(self) and targets from 0 to 1."""
    x, t = self.to(torch.float64), target.to(torch.float64)
    entropy = log1p64(exp64(-x.abs())) + (-x).clamp(min=0)
    losses = (1 - t) * x + (entropy if pos_weight is None else entropy * ((pos_weight.to(x.dtype) - 1) * t + 1))
    losses = losses if weight is None else losses * weight
    return _reduce(losses.to(torch.float32), reduction, target.dtype)

"""Losses and softmax: elements by IEEE operations or elementary functions, then sums in one order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from convgrad.functional.recording import recorded
from convgrad.spec.elementwise.table import MAPS
from convgrad.torch.training.channels import ChannelProgram, ChannelView, Floats, rows_of
from convgrad.torch.training.replay import replayed
from convgrad.torch.training.row import SECTIONS, SUMMED, UnservedError, result_type, row
from convgrad.torch.training.sums import axis_of, rounded, served, total
from convgrad.torch.training.tensors import allocated, check_numbers, constant, elements

_NONE, _MEAN = 0, 1  # values of ATen's `reduction`; 2 is the sum
_REDUCED = "mean or sum of the losses"
_DEPTH = "h v sum(abs(losses)), / count for the mean, + 3 u of each loss + u abs(result)"


# -- softmax -------------------------------------------------------------------------------------------------------

_EXPONENTIALS = "e = exp(self - max) by f32 operations, s = sum of e"


def _slices(x: Tensor, dim: int) -> ChannelView:
    """Return a tensor in row-major order, as channels whose positions are the elements along a dimension."""
    dim %= max(x.dim(), 1)
    outer, inner = prod(x.shape[:dim]), prod(x.shape[dim + 1 :])
    length = x.numel() // (outer * inner)
    return rows_of(x, outer, length) if inner == 1 else ChannelView(x.contiguous(), (outer, inner, length), True)


class _SliceProgram:
    """A program of sums of slices, and of maps on tensors and coefficients, which have a number per slice."""

    def __init__(self, view: ChannelView) -> None:
        self.view, self.program = view, ChannelProgram.by_channel(view)
        self.shape = view.shape[:2] if view.last else view.shape[1:2]

    def sums(self, name: str, *others: Tensor, **options: Any) -> Floats:
        """Return the sums of a map on the view and tensors like it, in f64."""
        sums: Floats = self.program.sums_of(name, self.view, *others, combined=not self.view.last, **options)[0]
        return sums

    def sums_of_exponentials(self, terms: Tensor | None = None) -> tuple[Tensor, Floats]:
        """Return the largest element of each slice, and the sum of e = exp(x - largest), which ``terms`` receives."""
        outer, inner, length = self.view.shape
        if self.view.last:
            largest = self.view.tensor.reshape(outer, length, inner).amax(1).float()
        else:
            largest = self.program.largest(self.view)
        return largest, self.sums("exp_of_difference", coefficients=(largest,), products=False, terms=terms)

    def coefficients(self, name: str, sums: Floats, *numbers: float) -> Tensor:
        """Return a map of sums as coefficients."""
        return self.program.coefficients(name, self.shape, [sums, *numbers], 1)[0]

    def result(self, name: str, *tensors: Tensor, coefficients: Sequence[Tensor], out: Tensor) -> Tensor:
        """Return the result of a map, after all that was added."""
        self.program.mapped(name, self.view, *tensors, coefficients=coefficients, out=out)
        self.program.run()
        return out


def _empty(view: ChannelView, dtype: torch.dtype) -> Tensor:
    return allocated(torch.empty_like(view.tensor, dtype=dtype))


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
    view = _slices(self, dim)
    program = _SliceProgram(view)
    largest, sums = program.sums_of_exponentials()
    coefficients = largest, program.coefficients("log64", sums)
    return program.result("difference_of_two", view.tensor, coefficients=coefficients, out=_empty(view, to))


@row(
    "_log_softmax_backward_data",
    formula="grad_output - exp(output) * (sum of grad_output), fused; exp by f32 operations",
    order=SECTIONS,
    bound="3 u exp(output) abs(sum of grad_output) + u abs(result) + h v exp(output) sum(abs(grad_output))",
)
def log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """Return the gradient of log_softmax from its output."""
    return _gradient("log_softmax_backward", grad_output, output, dim, input_dtype, products=False)


def _gradient(name: str, g: Tensor, output: Tensor, dim: int, to: torch.dtype, *, products: bool) -> Tensor:
    """Return a gradient from the sums of g, or those of its products with the output, along a dimension."""
    if g.shape != output.shape:
        raise RuntimeError(f"softmax: grad_output has shape {tuple(g.shape)}, but output {tuple(output.shape)}")
    if not g.numel():
        return torch.empty_like(g)
    view, output = _slices(g, dim), output.contiguous()
    program = _SliceProgram(view)
    sums = program.sums("products", output, plain=not products, products=products)
    coefficients = (program.coefficients("mean", sums, 1.0),)
    return program.result(name, view.tensor, output, coefficients=coefficients, out=_empty(view, to))


@row(
    "_softmax",
    formula=f"{_EXPONENTIALS}; e / (s rounded to f32)",
    order=SECTIONS,
    bound="(6 + abs(self - max) + mean of abs(self - max) with weights result) u result",
)
def softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return softmax along a dimension."""
    dim = axis_of(self, dim)  # PyTorch's kernel for meta does not check it
    to = torch.float32 if half_to_float else self.dtype
    if not self.numel():
        return torch.empty_like(self, dtype=to)
    view = _slices(self, dim)
    program, e = _SliceProgram(view), _empty(view, torch.float32)
    _, sums = program.sums_of_exponentials(e)
    coefficients = (program.coefficients("mean", sums, 1.0),)
    out = e if to == torch.float32 else _empty(view, to)
    return program.result("quotient", e, coefficients=coefficients, out=out)


def softmax_of_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return softmax along the last dimension in f32, the largest element of each row, and logsumexp."""
    view = _slices(x, -1)
    program, e = _SliceProgram(view), _empty(view, torch.float32)
    largest, sums = program.sums_of_exponentials(e)
    logarithms, means = program.coefficients("log64", sums), program.coefficients("mean", sums, 1.0)
    program.result("quotient", e, coefficients=(means,), out=e)
    return e, largest, elements("add", largest, logarithms, 1.0)


@row(
    "_softmax_backward_data",
    formula="output * (grad_output - (sum of grad_output * output, rounded to f32))",
    order=SECTIONS,
    bound="abs(output) (u abs(sum) + h v sum(abs(grad_output output))) + 2 u abs(result)",
)
def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """Return the gradient of softmax from its output."""
    return _gradient("softmax_backward", grad_output, output, dim, input_dtype, products=True)


# -- classes -------------------------------------------------------------------------------------------------------


def _places(labels: Tensor, ignore_index: int, x: Tensor) -> tuple[Tensor | None, Tensor]:
    """Return which labels of the rows of ``x`` are used, None for all, and their classes, 0 for those that are not."""
    if labels.shape != (len(x), *x.shape[2:]):
        raise RuntimeError(f"size mismatch (got input: {list(x.shape)}, target: {list(labels.shape)})")
    if labels.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"nll_loss: labels must be int64 or uint8; got {labels.dtype}")
    wide = labels.to(torch.int64)  # a comparison in uint8 would be with ignore_index modulo 256
    classes = x.shape[1]
    if wide.numel() and not 0 <= ignore_index < classes:
        lowest, highest = torch.aminmax(wide)
        if lowest >= 0 and highest < classes:
            return None, wide
    used = wide != ignore_index
    index = torch.where(used, wide, 0)
    wrong = (index < 0) | (index >= classes)
    if wrong.any():
        raise IndexError(f"Target {int(index[wrong][0])} is out of bounds.")
    return used, index


def _used(x: Tensor, used: Tensor | None) -> Tensor:
    """Return the elements of labels that are used, and 0 for the others."""
    return x if used is None else torch.where(used, x, 0)


def _weights(used: Tensor | None, index: Tensor, weight: Tensor | None, classes: int) -> Tensor | None:
    """Return the weight of each label, 0 for labels that are not used; None if all others have weight 1."""
    if weight is None:
        return None
    if weight.shape != (classes,):
        raise RuntimeError(f"nll_loss: weight must have one value per class, {classes}; got {tuple(weight.shape)}")
    return _used(weight.float()[index], used)


def _sum_of_weights(used: Tensor | None, weights: Tensor | None, labels: Tensor) -> Tensor:
    """Return the sum of the weights in f64."""
    if weights is not None:
        return total(weights)
    return torch.tensor(float(labels.numel() if used is None else used.count_nonzero()), dtype=torch.float64)


_total = replayed(total)


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
    losses = -x.gather(1, index.unsqueeze(1)).squeeze(1).float()
    losses = _used(losses if weights is None else losses * weights, used)
    if reduction == _NONE:
        return losses.reshape(target.shape if self.dim() > 1 else ()).to(self.dtype), self.new_zeros(())
    loss, all_weights = _total(losses.contiguous()), _sum_of_weights(used, weights, labels)
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
        gradient = gradient / _sum_of_weights(used, weights, labels).float()
    gradient = _used(-gradient.reshape(labels.shape), used).to(self.dtype)
    return torch.zeros_like(x).scatter_(1, index.unsqueeze(1), gradient.unsqueeze(1)).reshape(self.shape)


# -- losses of two tensors -----------------------------------------------------------------------------------------


def _losses(name: str, *operands: Tensor | float, reduction: int, to: torch.dtype) -> Tensor:
    """Return a map of losses on tensors and then numbers in the type ``to``, or their mean or sum."""
    if reduction == _NONE:
        return elements(name, *operands).to(to)
    served(to)
    tensors = torch.broadcast_tensors(*[operand for operand in operands if isinstance(operand, torch.Tensor)])
    first, *others = [(x if x.dtype in SUMMED else x.float()).contiguous() for x in tensors]
    dtype, count = torch.float64 if MAPS[name].wide else torch.float32, first.numel()
    numbers = [operand for operand in operands if not isinstance(operand, torch.Tensor)]
    check_numbers(*numbers)
    coefficients = [constant(torch.tensor([number], dtype=dtype)) for number in numbers]
    program = ChannelProgram(count)
    view = ChannelView(first, (1, 1, count), False)
    sums = program.sums_of(name, view, *others, coefficients=coefficients, products=False)
    result = program.rounded(sums[0], to, float(count) if reduction == _MEAN else 1.0)
    program.run()
    return result.reshape(())


def _count(self: Tensor, reduction: int) -> float:
    """Return the number by which the gradient of each loss is divided."""
    return float(self.numel()) if reduction == _MEAN else 1.0


def _difference_loss(name: str, formulas: tuple[str, str], default: float | None = None) -> None:
    """Add the two rows of a loss of d = self - target, which may have a parameter."""

    def parameters(parameter: float | None) -> tuple[float, ...]:
        return () if parameter is None else (parameter,)

    def forward(self: Tensor, target: Tensor, reduction: int = _MEAN, parameter: float | None = default) -> Tensor:
        if parameter is not None and not parameter >= 0:
            raise RuntimeError(f"{name} does not support negative values; got {parameter}")
        to = result_type(self, target)
        return _losses(name, self, target, *parameters(parameter), reduction=reduction, to=to)

    def backward(
        grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, parameter: float | None = default
    ) -> Tensor:
        operands = grad_output, self, target, _count(self, reduction), *parameters(parameter)
        return elements(f"{name}_backward", *operands).to(result_type(self, target))

    formula = f"d = self - target; {formulas[0]}; {_REDUCED}"
    row(name, formula=formula, order=SECTIONS, bound=_DEPTH)(forward)
    gradient = f"(grad_output, / count for the mean) * {formulas[1]}"
    row(f"{name}_backward", formula=gradient, bound="4 u abs(result)")(backward)


_difference_loss("mse_loss", ("d * d", "(2 * d)"))
_difference_loss(
    "smooth_l1_loss",
    ("0.5 * d * d / beta if abs(d) < beta, else abs(d) - 0.5 * beta", "(d / beta, or the sign of d)"),
    1.0,
)
_difference_loss(
    "huber_loss",
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
    to = result_type(self, target)
    return _losses("soft_margin_loss", self, target.expand(self.shape), reduction=reduction, to=to)


@row(
    "soft_margin_loss_backward",
    formula="(-target * (grad_output, / count for the mean)) * sigmoid(-target * self)",
    bound="4 ulp",
)
def soft_margin_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Return the gradient of soft_margin_loss."""
    operands = grad_output, self, target, _count(self, reduction)
    return elements("soft_margin_loss_backward", *operands).to(result_type(self, target))


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
        if tensor.numel() and not all(0 <= limit <= 1 for limit in torch.aminmax(tensor)):
            raise RuntimeError(f"binary_cross_entropy: all elements of {title} should be between 0 and 1")
    weights = _weights_of(self, weight)
    with recorded(None):  # a replay would not check the elements
        return _losses("binary_cross_entropy", self, target, weights, reduction=reduction, to=self.dtype)


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
    operands = grad_output, self, target, _weights_of(self, weight), _count(self, reduction)
    return elements("binary_cross_entropy_backward", *operands).to(self.dtype)


def _weights_of(self: Tensor, weight: Tensor | None) -> Tensor | float:
    """Return the weights of losses, which can be repeated to the shape of ``self``."""
    if weight is None:
        return 1.0
    weight.expand(self.shape)  # raises if they cannot
    return weight


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
    weights = 1.0 if weight is None else weight
    if pos_weight is None:
        return _losses("cross_entropy_of_logits", self, target, weights, reduction=reduction, to=target.dtype)
    operands = self, target, pos_weight, weights
    return _losses("weighted_cross_entropy_of_logits", *operands, reduction=reduction, to=target.dtype)

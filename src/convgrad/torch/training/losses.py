"""Losses: elements by IEEE operations or elementary functions, then sums in one order."""

from __future__ import annotations

import torch
from torch import Tensor

from convgrad.functional.recording import recorded
from convgrad.spec.elementwise.table import MAPS
from convgrad.torch.training.channels import ChannelProgram, ChannelView
from convgrad.torch.training.replay import replayed
from convgrad.torch.training.row import SECTIONS, SUMMED, UnservedError, result_type, row
from convgrad.torch.training.sums import rounded, served, total
from convgrad.torch.training.tensors import check_numbers, constant, elements

_NONE, _MEAN = 0, 1  # values of ATen's `reduction`; 2 is the sum
_REDUCED = "mean or sum of the losses"
_DEPTH = "h v sum(abs(losses)), / count for the mean, + 3 u of each loss + u abs(result)"


# -- classes -------------------------------------------------------------------------------------------------------


def _places(labels: Tensor, ignore_index: int, x: Tensor) -> tuple[Tensor | None, Tensor]:
    """Return which labels of the rows of ``x`` are used, None for all, and their classes, 0 for those that are not."""
    if labels.shape != (len(x), *x.shape[2:]):
        raise RuntimeError(f"size mismatch (got input: {list(x.shape)}, target: {list(labels.shape)})")
    if labels.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"nll_loss: labels must be int64 or uint8; got {labels.dtype}")
    wide = labels.contiguous().to(torch.int64)  # a comparison in uint8 would be with ignore_index modulo 256
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

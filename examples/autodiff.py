"""A small automatic differentiator on convgrad.vjp: every operator of the family, and gradients to any order.

python examples/autodiff.py

A tensor knows what it was made of, and ``pull``, which makes the gradients by that of the gradient by itself. These
are tensors too, so they can be differentiated again: ``layer`` is all that convolutions need for it. Shown are the
gradient, a Hessian-vector product and a third derivative of a network's loss by its weights, each held against
differences of the one before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import vjp

SHIFT, NEAR = 1e-5, 1e-6


class Tensor:
    """Data, the tensors it was made of, and the gradients by these of a gradient by it."""

    def __init__(self, data: Any, made_of: Sequence[Tensor | None] = (), pull: Pull | None = None) -> None:
        self.data: NDArray[np.float64] = np.asarray(data)
        self.made_of, self.pull = made_of, pull

    def __mul__(self, other: Tensor) -> Tensor:
        return Tensor(self.data * other.data, (self, other), lambda v: (v * other, v * self))

    def __add__(self, other: Tensor) -> Tensor:
        return Tensor(self.data + other.data, (self, other), lambda v: (v, v))

    def sum(self) -> Tensor:
        """Return the sum of all elements."""
        return Tensor(self.data.sum(), (self,), lambda v: (v.spread(self.data.shape),))

    def spread(self, shape: tuple[int, ...]) -> Tensor:
        """Return one element everywhere."""
        return Tensor(np.broadcast_to(self.data, shape), (self,), lambda v: (v.sum(),))


Pull = Callable[[Tensor], Sequence[Tensor | None]]


def layer(operator: str, *inputs: Tensor, **attributes: Any) -> Tensor:
    """Return the result of an operator."""
    result, pullback = vjp(operator, *(one.data for one in inputs), **attributes)

    def pull(v: Tensor) -> Sequence[Tensor | None]:
        return linked(*pullback.vjp(v.data), (*inputs, v))

    return Tensor(result, inputs, pull)


def linked(found: Sequence[Any], pullback: Any, made_of: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """Return gradients as tensors: each is pulled with the others' cotangents None, which is what costs nothing."""

    def pull_at(number: int) -> Pull:
        def pull(v: Tensor) -> Sequence[Tensor | None]:
            cotangents = [v if number == at else None for at in range(len(found))]
            given = tuple(None if one is None else one.data for one in cotangents)
            return linked(*pullback.vjp(given), (*made_of, *cotangents))

        return pull

    return [None if one is None else Tensor(one, made_of, pull_at(at)) for at, one in enumerate(found)]


def gradient(of: Tensor, by: Tensor) -> Tensor:
    """Return the gradient of a tensor of one element by another."""
    order: dict[int, Tensor] = {}

    def visit(tensor: Tensor) -> None:
        if id(tensor) not in order:
            for one in tensor.made_of:
                if one is not None:
                    visit(one)
            order[id(tensor)] = tensor  # behind all that it was made of

    visit(of)
    known = {id(of): Tensor(np.ones_like(of.data))}
    for tensor in reversed(order.values()):
        if tensor.pull is not None and id(tensor) in known:
            for one, part in zip(tensor.made_of, tensor.pull(known[id(tensor)]), strict=True):
                if one is not None and part is not None:
                    known[id(one)] = known[id(one)] + part if id(one) in known else part
    return known[id(by)]


def derivatives(weights: Tensor, src: Tensor, bias: Tensor, back: Tensor, u: Tensor) -> list[Tensor]:
    """Return a network's loss, its gradient by the weights, and that one's derivatives along u, the Hessian's first."""
    hidden = layer("Convolution", src, weights, bias, strides=2, auto_pad="same_upper")
    out = layer("ConvTranspose", hidden * hidden, back, strides=2, auto_pad="same_upper")
    loss = (out * out).sum()
    first = gradient(loss, weights)
    second = gradient((first * u).sum(), weights)
    return [loss, first, second, gradient((second * u).sum(), weights)]


def main() -> int:
    rng = np.random.default_rng(0)
    shapes = [(3, 3, 2, 4), (2, 6, 6, 2), (4,), (3, 3, 1, 4), (3, 3, 2, 4)]
    weights, *others, u = (Tensor(rng.standard_normal(shape) / 3) for shape in shapes)
    found = derivatives(weights, *others, u)
    shifted = [derivatives(Tensor(weights.data + sign * SHIFT * u.data), *others, u) for sign in (1, -1)]
    worst = 0.0
    for order in range(3):
        after, before = (each[order].data for each in shifted)
        along = np.asarray((after - before) / (2 * SHIFT))
        claimed = (found[1] * u).data.sum() if order == 0 else found[order + 1].data
        apart = float(np.abs(claimed - along).max() / np.abs(along).max())
        print(f"derivative {order + 1}: {apart:.1e} of the largest from differences")
        worst = max(worst, apart)
    return 0 if worst < NEAR else 1


if __name__ == "__main__":
    sys.exit(main())

"""Maps of optimizers' steps, with the operations of PyTorch's unfused steps in the same order."""

from __future__ import annotations

import itertools

from convgrad.spec.elementwise.arithmetic import Number, Operations
from convgrad.spec.elementwise.definition import Definition, Map, Maps
from convgrad.spec.elementwise.maps import addcdiv, addcmul, lerp_high, lerp_low

STEPS = Maps()


def _sgd(decay: bool, momentum: str, nesterov: bool) -> Definition:
    """Return a step of SGD on a parameter p, the buffer b of its momentum, and its gradient g; b is not read first."""

    def step(
        m: Operations, p: Number, b: Number, g: Number, rate: Number, factor: Number, decay_factor: Number, keep: Number
    ) -> tuple[Number, Number]:
        g = g + p * decay_factor if decay else g
        if momentum == "later":
            b = b * factor + g * keep
        elif momentum == "first":
            b = g
        used = g if momentum == "none" else g + b * factor if nesterov else b
        return p - used * rate, b

    return step


def _adam(decay: str, is_low: bool, amsgrad: bool) -> Definition:
    """Return a step of Adam on a parameter p, averages of gradients and of squares, the largest average, and g.

    The moving averages of gradients use ``lerp_low`` or ``lerp_high``.
    """

    def step(
        m: Operations,
        p: Number,
        average: Number,
        squares: Number,
        largest: Number,
        g: Number,
        decay_factor: Number,
        weight: Number,
        beta2: Number,
        weight2: Number,
        root: Number,
        eps: Number,
        rate: Number,
    ) -> tuple[Number, ...]:
        p = p * decay_factor if decay == "decoupled" else p
        g = g + p * decay_factor if decay == "coupled" else g
        average = lerp_low(m, average, g, weight) if is_low else lerp_high(m, average, g, weight)
        squares = addcmul(m, squares * beta2, g, g, weight2)
        if amsgrad:
            larger = m.select(m.less(largest, squares), squares, largest)
            largest = m.select(m.equal(squares, squares), larger, squares)
        divisor = m.sqrt(largest if amsgrad else squares) / root + eps
        return addcdiv(m, p, average, divisor, rate), average, squares, largest

    return step


def sgd_name(decay: bool, momentum: str, nesterov: bool) -> str:
    """Return the name of the map of a step of SGD; ``momentum`` is none, first or later."""
    return f"sgd{'_decay' * decay}_{momentum}{'_nesterov' * nesterov}"


def adam_name(decay: str, is_low: bool, amsgrad: bool) -> str:
    """Return the name of the map of a step of Adam; ``decay`` is none, coupled or decoupled."""
    return f"adam_{decay}_{'low' if is_low else 'high'}{'_amsgrad' * amsgrad}"


for _case in itertools.product((False, True), ("none", "first", "later"), (False, True)):
    if _case[1:] != ("none", True):
        STEPS[sgd_name(*_case)] = Map(sgd_name(*_case), _sgd(*_case))
for _choice in itertools.product(("none", "coupled", "decoupled"), (False, True), (False, True)):
    STEPS[adam_name(*_choice)] = Map(adam_name(*_choice), _adam(*_choice))

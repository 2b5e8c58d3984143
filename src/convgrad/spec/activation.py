"""The activation of a forward's results, which is applied before they are rounded, after bias and old value."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array
from convgrad.float_environment import in_default_environment
from convgrad.spec.operators import VERSION
from convgrad.spec.problem import REMEMBERED, Problem, intern
from convgrad.spec.rules import refuse
from convgrad.words import shown

RELU = "relu"  # x <= 0 becomes +0, NaN stays NaN
ACTIVATED = ("Convolution", "ConvTranspose", "BiasAdd")  # the operators whose results can be activated


def activated(problem: Problem, activation: object) -> Problem:
    """Return the problem with this activation of its results, "relu" or None. Raise by rule D13 for any other value.

    >>> from convgrad.notation import problem
    >>> activated(problem("FWD_D f32 NXC mb1ic1iw3oc1ow3kw3pw1"), "relu").activation
    'relu'
    """
    if not is_relu(activation, problem.operator):
        return problem
    if not activates(problem.operator):  # D13
        allowed = f"activation belongs to {', '.join(ACTIVATED)}"
        refuse("D13", problem.operator, f"{allowed}; a part of a sum, or a gradient, has none; got {activation!r}")
    return _with(problem, RELU)


def is_relu(activation: object, operator: str) -> bool:
    """Return True for "relu" and False for None. Raise by rule D13 for any other activation."""
    if activation is not None and not (isinstance(activation, str) and activation == RELU):  # D13
        refuse("D13", operator, f'activation must be None or "relu"; got {shown(activation)}')
    return activation is not None


def activates(operator: str) -> bool:
    """Return whether the results of an operator, under a name of any generation, can be activated."""
    return operator.removesuffix(VERSION) in ACTIVATED


@lru_cache(maxsize=REMEMBERED)
def _with(problem: Problem, activation: str) -> Problem:
    return intern(replace(problem, activation=activation))


def activate(values: Array, problem: Problem) -> Array:
    """Return a problem's results ``values`` after its activation; unchanged if the problem has no activation.

    >>> from convgrad.notation import problem
    >>> one = activated(problem("FWD_D f32 NXC mb1ic1iw3oc1ow3kw3pw1"), "relu")
    >>> activate(np.array([-1.0, -0.0, 2.0, np.nan]), one).tolist()
    [0.0, 0.0, 2.0, nan]
    """
    return relu(values) if problem.activation else values


def relu(values: Array) -> Array:
    """Return ReLU of the values, in their number format.

    >>> relu(np.array([-1, 2], np.float16)).tolist()
    [0.0, 2.0]
    """
    return np.where(inactive(values), values.dtype.type(0), values)


@in_default_environment
def inactive(values: Array) -> NDArray[np.bool_]:
    """Return which values ReLU replaces by 0. A denormal above 0 is not among them, even if the caller flushes it."""
    with np.errstate(invalid="ignore"):  # NaN in formats of ml_dtypes
        is_inactive: NDArray[np.bool_] = values <= 0
    return is_inactive

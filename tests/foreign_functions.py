"""Functions to verify, as somebody else might have written them: right ones, and one for each way to go wrong."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any

import numpy as np

import convgrad

Array = np.ndarray


def right(operator: str, *inputs: Any, **attributes: Any) -> Array:
    return convgrad.run(operator, *inputs, **attributes)


def late(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Right, but for the last element in memory."""
    result = convgrad.run(operator, *inputs, **attributes)
    result.reshape(-1)[-1:] += 1
    return result


def late_where_many(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Wrong in weights gradients only."""
    return (late if operator.endswith("BackwardWeights") else right)(operator, *inputs, **attributes)


def raises(operator: str, *inputs: Any, **attributes: Any) -> Array:
    raise ZeroDivisionError("no kernel")


def leaves(operator: str, *inputs: Any, **attributes: Any) -> Array:
    sys.exit(3)


def long(operator: str, *inputs: Any, **attributes: Any) -> Array:
    return np.append(right(operator, *inputs, **attributes), np.float32(0))


def integers(operator: str, *inputs: Any, **attributes: Any) -> Array:
    return right(operator, *inputs, **attributes).astype(np.int64)


def writes(operator: str, *inputs: Any, **attributes: Any) -> Array:
    result = right(operator, *inputs, **attributes)
    inputs[0][...] = -0.0 if not inputs[0].any() else 0
    return result


def prints(operator: str, *inputs: Any, **attributes: Any) -> Array:
    print("a line of Python's")
    return right(operator, *inputs, **attributes)


def writes_to_descriptor(operator: str, *inputs: Any, **attributes: Any) -> Array:
    os.write(1, b"a line of C's\n")
    return right(operator, *inputs, **attributes)


def neighbours(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Reads operands as if their elements were neighbours, as kernels do that look at no strides."""
    flat = [np.ndarray(a.shape, a.dtype, a.base, 0) if isinstance(a, np.ndarray) else a for a in inputs]
    return right(operator, *flat, **attributes)


def segfault(operator: str, *inputs: Any, **attributes: Any) -> None:
    ctypes.string_at(0)


def segfault_once(operator: str, *inputs: Any, **attributes: Any) -> Array:
    if operator.endswith("BackwardWeights"):
        ctypes.string_at(0)
    return right(operator, *inputs, **attributes)


def ends(operator: str, *inputs: Any, **attributes: Any) -> None:
    os._exit(7)


def ends_with_a_child(operator: str, *inputs: Any, **attributes: Any) -> None:
    """End while a process of its own, which has every pipe of its parent's, lives on for a while."""
    if os.fork():
        os._exit(7)
    time.sleep(5)
    os._exit(0)


def hangs(operator: str, *inputs: Any, **attributes: Any) -> None:
    time.sleep(600)


number = 3

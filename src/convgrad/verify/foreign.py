"""Functions of other libraries or users: loading by name, arguments, and checks of the returned arrays."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from operator import attrgetter
from threading import Lock
from typing import TextIO

import numpy as np

from convgrad import arrays
from convgrad.array_types import Array
from convgrad.arrays import libraries
from convgrad.errors import ConvgradError, NotationError, UnsupportedError
from convgrad.functional.call import Prepared
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import find
from convgrad.verify.c_function import CFunction, UnservedCallError
from convgrad.verify.copies import copied, same_bits
from convgrad.verify.verdict import NOT_SERVED, WRONG, Defect, Verdict
from convgrad.words import described

Function = Callable[..., object]
Inputs = tuple[object, ...]

RAISED, WRONG_KIND, WROTE = "raised an error", "wrong shape or type", "operand overwritten"


class _ToStderr:
    """Standard output goes to standard error until the last of several threads leaves, which may overlap."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._stdout: TextIO = sys.stdout

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._stdout, sys.stdout = sys.stdout, sys.stderr
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.stdout = self._stdout


_STDOUT = _ToStderr()


def load(name: str, signature: str | None = None) -> Function:
    """Return the function named ``module:function``; the working directory is searched first.

    With a ``signature``, the name is ``library:function``, a function of a C library.

    Raises NotationError for a name of another form, UnsupportedError if there is no such function.

    >>> load("convgrad:run").__name__
    'run'
    """
    if signature is not None:
        return CFunction(name, signature)
    module_name, _, path = name.partition(":")
    if not all(word.isidentifier() for word in (*module_name.split("."), *path.split("."))):
        raise NotationError(f"a function must be given as module:function, such as convgrad:run; got {name!r:.200}")
    here = os.getcwd()
    if sys.path[:1] not in ([""], [here]):  # search the working directory first, as python -m does
        sys.path.insert(0, here)
    try:
        function = attrgetter(path)(importlib.import_module(module_name))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an import may raise anything
        raise UnsupportedError(f"{name} cannot be loaded: {_said(error)}") from error
    if not callable(function):
        raise UnsupportedError(f"{name} must be a function; got {type(function).__name__}")
    loaded: Function = function
    return loaded


def resolved(prepared: Prepared) -> dict[str, object]:
    """Return all attributes of a call by the operator's names, with defaults filled in and pads computed.

    >>> from convgrad.functional.call import prepare
    >>> ones = np.ones((1, 5, 1), np.float32)
    >>> prepared = prepare("Convolution", (ones, ones[0, :3, :, None]),
    ...     {"strides": [2], "dilations": [1], "auto_pad": "same_upper"})
    >>> resolved(prepared)["pads_begin"], resolved(prepared)["auto_pad"]
    ([1], 'same_upper')
    """
    op, checked, geometry = prepared.op, prepared.attributes, prepared.problem.geometry
    if not isinstance(geometry, Conv):
        return {"data_format": checked.data_format}
    axes = geometry.axes
    values: dict[str, object] = {
        "strides": [a.stride for a in axes],
        "pads_begin": [a.pad_begin for a in axes],
        "pads_end": [a.pad_end for a in axes],
        "dilations": [a.dilation for a in axes],
        "auto_pad": checked.auto_pad,
        "groups": geometry.groups,
        "data_format": checked.data_format,
        "weights_format": checked.weights_format,
    }
    if checked.output_padding is not None:
        values["output_padding"] = list(checked.output_padding)
    names = {a.means: a.name for a in op.attributes}
    return {names[meaning]: value for meaning, value in values.items()}


def arguments(prepared: Prepared) -> tuple[Inputs, dict[str, object]]:
    """Return the arguments of ``function(operator, *inputs, **attributes)`` for a prepared call.

    Inputs are in the operator's order and layouts; shape operands are tuples. Attributes are resolved, and include
    ``dtype`` if the result's type differs from the operands' type. ``convgrad.run`` accepts these arguments, too.
    """
    problem, taken = prepared.problem, prepared.taken
    inputs: list[object] = []
    for port in prepared.op.operands:
        if port.is_shape:
            inputs.append(problem.output_shape)
        elif port.name in taken:
            inputs.append(taken[port.name])
    attributes = resolved(prepared)
    if "auto_pad" in attributes:
        attributes["auto_pad"] = "none"  # pads_begin and pads_end have the computed pads
    if problem.output_format is not problem.operand_format:
        attributes["dtype"] = problem.output_format.name
    return tuple(inputs), attributes


def answer(function: Function, operator: str, inputs: Inputs, attributes: Mapping[str, object]) -> Array | Verdict:
    """Call a function and return its array, or the verdict *wrong* if it raises or does not return an array.

    The verdict is *not served* if the function raises NotImplementedError or returns NotImplemented.

    The function gets copies of the inputs, so it cannot change the caller's arrays. The verdict is *wrong* if the
    function writes to its operands: the copies are compared with the inputs after the call. The function's standard
    output goes to standard error.
    """
    ours = [value if isinstance(value, np.ndarray) else libraries.opened(value) for value in inputs]
    copies = [
        value if array is None else libraries.like(value)(copied(array))
        for value, array in zip(inputs, ours, strict=True)
    ]
    try:
        with _STDOUT:
            value = function(operator, *copies, **attributes)
    except NotImplementedError as error:
        reason = str(error) if isinstance(error, UnservedCallError) else f"it raised {_said(error)}"
        return Verdict(outcome=NOT_SERVED, reason=reason)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exception of any class is a wrong answer, such as a panic of a Rust extension
        return Verdict(outcome=WRONG, reason=f"it raised {_said(error)}", found=(Defect(RAISED),))
    if value is NotImplemented:
        return Verdict(outcome=NOT_SERVED, reason="it returned NotImplemented")
    for number, (before, value_after) in enumerate(zip(ours, copies, strict=True)):
        after = value_after if isinstance(value_after, np.ndarray) else libraries.opened(value_after)
        if before is not None and after is not None and not same_bits(before, after):
            said = f"it wrote to its operand {find(operator).operands[number].name}, of shape {before.shape}"
            return Verdict(outcome=WRONG, reason=said, found=(Defect(WROTE),))
    try:
        return arrays.take(libraries.detached(value), operator, "result")[0]
    except ConvgradError as error:
        return Verdict(outcome=WRONG, reason=str(error), found=(Defect(WRONG_KIND),))


def _said(error: BaseException) -> str:
    """Return an error's type and message, and the file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    words = described(error)
    last = frames[-1]
    there = len(frames) > 1 and not last.filename.startswith("<")  # the first frame is ours
    return f"{words} ({os.path.basename(last.filename)}, line {last.lineno})" if there else words

"""A foreign function: how it is found by its name, and what it is called with."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from convgrad.errors import NotationError, UnsupportedError
from convgrad.functional.call import Prepared
from convgrad.spec.geometry import Conv

Function = Callable[..., object]


def load(name: str) -> Function:
    """Return the function named ``module:function``, which is looked for in the working directory first.

    Raises NotationError of a name of another form, UnsupportedError where there is no such function.

    >>> load("convgrad:run").__name__
    'run'
    """
    module, _, path = name.partition(":")
    if not all(word.isidentifier() for word in (*module.split("."), *path.split("."))):
        raise NotationError(f"a function is named module:function, such as convgrad:run; got {name!r}")
    if sys.path[:1] not in ([""], [os.getcwd()]):  # as python -m has it
        sys.path.insert(0, os.getcwd())
    try:
        function: Function = attrgetter(path)(importlib.import_module(module))
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        raise UnsupportedError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    return function


def arguments(prepared: Prepared) -> tuple[tuple[object, ...], dict[str, Any]]:
    """Return what ``function(operator, *inputs, **attributes)`` is called with for a prepared call.

    Inputs stand in the operator's order and layouts, shape operands as tuples in their place; attributes are resolved,
    ``dtype`` among them where the result's type is not the operands'. ``convgrad.run`` takes the same.
    """
    problem, checked = prepared.problem, prepared.attributes
    ports = [port for port in prepared.op.operands if port.is_shape or port.name in prepared.taken]
    inputs = tuple(problem.output_shape if port.is_shape else prepared.taken[port.name] for port in ports)
    attributes: dict[str, Any] = {"data_format": checked.data_format}
    if isinstance(problem.geometry, Conv):
        axes = problem.geometry.axes
        attributes |= {
            "strides": [a.stride for a in axes],
            "pads_begin": [a.pad_begin for a in axes],
            "pads_end": [a.pad_end for a in axes],
            "dilations": [a.dilation for a in axes],
            "auto_pad": "none",
            "groups": problem.geometry.groups,
            "weights_format": checked.weights_format,
        }
        if checked.output_padding is not None:
            attributes["output_padding"] = list(checked.output_padding)
    names = {a.means: a.name for a in prepared.op.attributes}
    attributes = {names[meaning]: value for meaning, value in attributes.items()}
    if problem.output_format is not problem.operand_format:
        attributes["dtype"] = problem.output_format.name
    return inputs, attributes

"""What other libraries call the attributes and operands of a convolution: what it is here, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from types import MappingProxyType
from typing import Any

from convgrad.spec.operators import Operator

_Taught = Callable[[Operator, Any, int], str]  # of the operator, the value, and how many spatial axes: the hint


def _integers(value: object) -> list[int] | None:
    """Return the integers of a sequence; None of anything else."""
    try:
        return [index(item) for item in value]  # type: ignore[attr-defined]
    except TypeError:
        return None


def _each(value: object, axes: int) -> list[int] | None:
    """Return one integer per axis of what was given, where it says that: one for all, or a sequence."""
    integers = [value] * axes if type(value) is int else _integers(value)
    return integers if integers is not None and len(integers) == axes else None


def per_axis(name: str, value: object, axes: int) -> str:
    """Write an attribute of one integer per axis as it was meant, or only its name.

    >>> per_axis("strides", 2, 2), per_axis("strides", "2", 2)
    ('strides=[2, 2]', 'strides, one integer per spatial axis')
    """
    integers = _each(value, axes)
    return f"{name}, one integer per spatial axis" if integers is None else f"{name}={integers}"


def _axes(means: str) -> _Taught:
    return lambda op, value, axes: f"did you mean {per_axis(means, value, axes)}?"


def _said(text: str) -> _Taught:
    return lambda op, value, axes: text


def _groups(op: Operator, value: object, axes: int) -> str:
    return f"did you mean groups={value}?"


SAME = {"same": "same_upper", "same_upper": "same_upper", "same_lower": "same_lower", "valid": "valid"}
# By the attribute that it is a value of, what others write in lower case
CHOICES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"auto_pad": SAME, "data_format": {"channels_last": "NXC", "channels_first": "NCX"}}
)


def _pads(op: Operator, value: Any, axes: int) -> str:
    """Write pads in one attribute as our two: an integer, one per axis, pairs by axis, ONNX's list, or a name."""
    name = SAME.get(value.lower()) if isinstance(value, str) else None
    if name is not None:
        return f"did you mean auto_pad={name!r}?"
    begin = end = _each(value, axes)
    numbers = _integers(value)
    if begin is None and numbers is not None and len(numbers) == 2 * axes:
        begin, end = numbers[:axes], numbers[axes:]
    pairs = [_integers(pair) for pair in value] if isinstance(value, Sequence) and len(value) == axes else []
    if begin is None and pairs and all(pair is not None and len(pair) == 2 for pair in pairs):
        begin, end = ([pair[side] for pair in pairs if pair] for side in (0, 1))
    if begin is None:
        return "pads are pads_begin and pads_end, one integer per spatial axis each, or follow from auto_pad"
    return f"did you mean pads_begin={begin}, pads_end={end}?"


def _kernel(op: Operator, value: object, axes: int) -> str:
    if op.solves_for != "weights":
        return "the kernel is as large as the weights are"
    shape = next(port.name for port in op.operands if port.is_shape)
    return f"the kernel is as large as {shape} says, which has the channels too"


def _formats(op: Operator, value: object, axes: int) -> str:
    weights = op.attribute("weights_format")
    and_weights = f", and {weights.name}" if weights else ""
    return f"the order of axes is data_format, 'NXC' (channels last) or 'NCX'{and_weights}"


_SRC, _WEIGHTS = ("input", "inputs", "x", "X", "lhs"), ("weight", "filter", "filters", "kernel", "W", "w", "rhs")
_OPERANDS = (*_SRC, *_WEIGHTS, "grad_output")
_CHANNELS = ("in_channels", "out_channels", "channels")
_FORMATS = ("dimension_numbers", "layout", "data_layout", "memory_format")
_THREADS, _DTYPES = ("num_threads", "n_threads", "nthreads", "n_jobs"), ("out_dtype", "preferred_element_type")
_OF_BIASES_TOO = {*_CHANNELS, *_FORMATS, *_THREADS, *_DTYPES}

TAUGHT: Mapping[str, _Taught] = MappingProxyType(
    {
        **dict.fromkeys(("stride", "window_strides", "kernel_stride", "subsample"), _axes("strides")),
        **dict.fromkeys(("dilation", "rhs_dilation", "dilation_rate", "kernel_dilation"), _axes("dilations")),
        **dict.fromkeys(("group", "feature_group_count", "num_group", "num_groups"), _groups),
        **dict.fromkeys(("padding", "paddings", "pad", "pads", "padding_config", "explicit_paddings"), _pads),
        **dict.fromkeys(("lhs_dilation", "input_dilation", "base_dilation"), _said(
            "src with zeros between is what a transposed convolution makes of its strides")),
        **dict.fromkeys(("kernel_size", "kernel_shape", "filter_size"), _kernel),
        **dict.fromkeys(_FORMATS, _formats),
        **dict.fromkeys(_CHANNELS, _said("channels are as many as the arrays have")),
        **dict.fromkeys(_THREADS, _said("did you mean threads?")),
        **dict.fromkeys(_DTYPES, _said("did you mean dtype?")),
        "batch_group_count": _said("there are groups of channels only, groups"),
        "output_padding": _said(
            "it is of transposed operators and data gradients; here the extents of both sides are known without it"),
        "output_mask": _said("which gradients are computed is needs, of 'src', 'weights' and 'bias'"),
        "padding_mode": _said("pads are zeros here; numpy.pad makes others"),
    }
)  # fmt: skip


def taught(op: Operator, name: str, value: object, axes: int) -> str:
    """Return what an attribute that another library has is here; "" of what none is known to have.

    >>> from convgrad.spec.operators import find
    >>> taught(find("Convolution"), "padding", ((0, 1), (2, 3)), 2)
    'did you mean pads_begin=[0, 2], pads_end=[1, 3]?'
    """
    if name in _OPERANDS:
        return f"the operands are {', '.join(port.name for port in op.operands)}, in this order"
    known = name in TAUGHT and (name in _OF_BIASES_TOO or op.attribute("strides") is not None)
    return TAUGHT[name](op, value, axes) if known else ""

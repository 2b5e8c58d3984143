"""The names that other libraries give to attributes and operands of a convolution, and hints about the names here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from operator import index
from types import MappingProxyType
from typing import Any

from convgrad.spec.operators import LARGEST_RANK, S64_MAX, Operator

_Taught = Callable[[Operator, Any, int], str]  # (operator, value, number of spatial axes) -> hint


_POSITIVE = ("strides", "dilations", "groups")


def _integer(value: Any) -> int | None:
    """Return an int for a Python, NumPy or PyTorch integer; None for anything else."""
    try:
        return None if isinstance(value, bool) else index(value)
    except Exception:  # a caller's class may raise anything
        return None


def _integers(value: object) -> list[int] | None:
    """Return the integers of a sequence; None for anything else."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return None
    try:
        integers = [_integer(item) for item in islice(value, 2 * LARGEST_RANK + 1)]
    except Exception:  # a caller's class may raise anything, and arrays without axes cannot be iterated
        return None
    return None if None in integers else [integer for integer in integers if integer is not None]


def _fits(name: str, *integers: int) -> bool:
    return all((name in _POSITIVE) <= integer <= S64_MAX for integer in integers)


def _per_axis(name: str, value: object, axes: int) -> list[int] | None:
    """Return one integer per axis from an integer or a sequence; None if the value is not legal for the attribute.

    The number of axes is 0 if it is unknown.
    """
    integer = _integer(value)
    integers = _integers(value) if integer is None else [integer] * axes
    return integers if integers and len(integers) == axes and _fits(name, *integers) else None


def per_axis(name: str, value: object, axes: int) -> str:
    """Return the text of a keyword argument with one integer per axis; a description if the value is not legal.

    >>> per_axis("strides", 2, 2), per_axis("strides", 0, 2)
    ('strides=[2, 2]', 'strides, one positive integer per spatial axis')
    """
    integers = _per_axis(name, value, axes)
    positive = "positive " * (name in _POSITIVE)
    return f"{name}, one {positive}integer per spatial axis" if integers is None else f"{name}={integers}"


def _axes(means: str) -> _Taught:
    return lambda op, value, axes: f"Did you mean {per_axis(means, value, axes)}?"


def _said(text: str) -> _Taught:
    return lambda op, value, axes: text


def _groups(op: Operator, value: object, axes: int) -> str:
    groups = _integer(value)
    known = groups is not None and _fits("groups", groups)
    return f"Did you mean groups={groups}?" if known else "Did you mean groups, a positive integer?"


SAME = {"same": "same_upper", "same_upper": "same_upper", "same_lower": "same_lower", "valid": "valid"}
# Per attribute: other libraries' values in lower case, and the same values here
CHOICES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"auto_pad": SAME, "data_format": {"channels_last": "NXC", "channels_first": "NCX"}}
)


def _pads(op: Operator, value: Any, axes: int) -> str:
    """Return a hint that rewrites another library's pads as pads_begin and pads_end, or as auto_pad.

    ``value`` may be an integer, one integer per axis, a pair per axis, ONNX's list, or a name such as "same".
    """
    name = SAME.get(value.lower()) if isinstance(value, str) else None
    if name is not None:
        return f"Did you mean auto_pad={name!r}?"
    # The loops below iterate more than once, and no legal value is longer.
    items = list(islice(value, 2 * LARGEST_RANK)) if isinstance(value, Iterator) else value
    begin = end = _per_axis("pads_begin", items, axes)
    numbers = _integers(items)
    if begin is None and numbers and len(numbers) == 2 * axes and _fits("pads_begin", *numbers):
        begin, end = numbers[:axes], numbers[axes:]
    is_short = isinstance(items, list | tuple) and len(items) <= axes
    pairs = [_per_axis("pads_begin", pair, 2) or [] for pair in items] if is_short else []
    if begin is None and pairs and len(pairs) == axes and all(pairs):
        begin, end = ([pair[side] for pair in pairs] for side in (0, 1))
    if begin is None:
        return "Pads are pads_begin and pads_end, one integer per spatial axis each, or follow from auto_pad"
    return f"Did you mean pads_begin={begin}, pads_end={end}?"


def _kernel(op: Operator, value: object, axes: int) -> str:
    if op.solves_for != "weights":
        return "The shape of the weights determines the kernel"
    shape = next(port.name for port in op.operands if port.is_shape)
    return f"The kernel's extents are part of {shape}, which also has the channels"


def _gaps(op: Operator, value: object, axes: int) -> str:
    if op.transposed or op.solves_for == "src":
        return _axes("strides")(op, value, axes)
    return "Use a transposed convolution: its strides put zeros between the positions of src"


def _needs(op: Operator, value: object, axes: int) -> str:
    function = "conv_transpose_backward" if op.transposed else "convolution_backward"
    of = "" if op.name == function else f" of {function}"
    return f"Use needs{of}, a tuple of 'src', 'weights' and 'bias'"


def _formats(op: Operator, value: object, axes: int) -> str:
    weights = op.attribute("weights_format")
    and_weights = f", and {weights.name}" if weights else ""
    return f"The order of axes is data_format, 'NXC' (channels last) or 'NCX'{and_weights}"


_SRC, _WEIGHTS = ("input", "inputs", "x", "X", "lhs"), ("weight", "filter", "filters", "kernel", "W", "w", "rhs")
_OPERANDS = (*_SRC, *_WEIGHTS, "grad_output")
_CHANNELS = ("in_channels", "out_channels", "channels")
_FORMATS = ("dimension_numbers", "layout", "data_layout", "memory_format")
_THREADS, _DTYPES = ("num_threads", "n_threads", "nthreads", "n_jobs"), ("out_dtype", "preferred_element_type")
_OF_BIASES_TOO = {*_CHANNELS, *_FORMATS, *_THREADS, *_DTYPES, "dtype", "out", "accumulate", "activation"}

TAUGHT: Mapping[str, _Taught] = MappingProxyType(
    {
        **dict.fromkeys(("stride", "window_strides", "kernel_stride", "subsample"), _axes("strides")),
        **dict.fromkeys(("dilation", "rhs_dilation", "dilation_rate", "kernel_dilation"), _axes("dilations")),
        **dict.fromkeys(("group", "feature_group_count", "num_group", "num_groups"), _groups),
        **dict.fromkeys(("padding", "paddings", "pad", "pads", "padding_config", "explicit_paddings"), _pads),
        **dict.fromkeys(("lhs_dilation", "input_dilation", "base_dilation"), _gaps),
        **dict.fromkeys(("kernel_size", "kernel_shape", "filter_size"), _kernel),
        **dict.fromkeys(_FORMATS, _formats),
        **dict.fromkeys(_CHANNELS, _said("The shapes of the arrays determine the channels")),
        **dict.fromkeys(_THREADS, _said("Did you mean threads?")),
        **dict.fromkeys(_DTYPES, _said("Did you mean dtype?")),
        "batch_group_count": _said("There are only groups of channels: groups"),
        "output_padding": _said(
            "It is for transposed operators and data gradients. Here the extents of both sides are known without it"
        ),
        "output_mask": _needs,
        "padding_mode": _said("Padding is zeros here. Use numpy.pad for others"),
        "dtype": _said("The results of this function have a type of their own"),
        "max_error": _said("This function computes direct sums, which are within any max_error"),
        "activation": _said("It is an option of forward operators and of BiasAdd"),
        **dict.fromkeys(("out", "accumulate"), _said("This function returns a new array")),
    }
)


def is_shape_of(tensor: str, name: str) -> bool:
    """Return whether another library may give this name to the shape of the weights, or of another tensor.

    >>> is_shape_of("weights", "filter_shape"), is_shape_of("weights", "input_shape"), is_shape_of("src", "input_shape")
    (True, False, True)
    """
    is_of_weights = name.startswith(("weight", "filter"))
    return name.endswith("_shape") and name not in TAUGHT and is_of_weights == (tensor == "weights")


def taught(op: Operator, name: str, value: object, axes: int) -> str:
    """Return a hint about another library's attribute or operand; "" for an unknown name.

    >>> from convgrad.spec.operators import find
    >>> taught(find("Convolution"), "padding", ((0, 1), (2, 3)), 2)
    'Did you mean pads_begin=[0, 2], pads_end=[1, 3]?'
    """
    if name in _OPERANDS:
        return f"The operands are {', '.join(port.name for port in op.operands)}, in this order"
    known = name in TAUGHT and (name in _OF_BIASES_TOO or op.attribute("strides") is not None)
    return TAUGHT[name](op, value, axes) if known else ""

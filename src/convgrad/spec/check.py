"""Checks of a call's attributes against the operator table: names, types, ranges, choices, lengths, defaults."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

import numpy as np

from convgrad.spec.foreign import CHOICES, SAME, is_shape_of, per_axis, taught
from convgrad.spec.layouts import in_our_letters
from convgrad.spec.operators import (
    CONV_WEIGHTS,
    LARGEST_RANK,
    OPERATORS,
    S64_MAX,
    TRANSPOSE_WEIGHTS,
    Attribute,
    Operator,
)
from convgrad.spec.rules import refuse
from convgrad.words import meant, shown

_INT = {int}
LISTED_NAMES = 8  # unknown attributes in an error
_ABSENT = (0,) * 12  # oneDNN writes twelve zeros for an absent attribute


@dataclass(frozen=True)
class Attributes:
    """Checked attributes under their current names. Absent lists are None, except pads that the operator sets to 0."""

    strides: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] | None = ()
    pads_end: tuple[int, ...] | None = ()
    dilations: tuple[int, ...] = ()
    auto_pad: str = "none"
    groups: int = 1
    data_format: str = "NXC"
    weights_format: str = "XIO"
    output_padding: tuple[int, ...] | None = None
    weights_shape: tuple[int, ...] | None = None
    dst_shape: tuple[int, ...] | None = None


def check_attributes(op: Operator, options: Mapping[str, object], axes: int) -> Attributes:
    """Return the attributes of a call on ``axes`` spatial axes, or raise by rules A1 to A6.

    An attribute with the value None counts as absent, and so does a placeholder of oneDNN.
    """
    check_names(op, options, axes)
    values: dict[str, Any] = {}
    value: Any
    for attribute in op.attributes:
        value = options.get(attribute.name)
        if value is None or is_placeholder(attribute, value, axes):
            if attribute.required:  # A3
                plain = f"the default of the functions is {per_axis(attribute.name, 1, axes)}"
                refuse(
                    "A3",
                    op.name,
                    f"{attribute.name} is required ({_type_words(attribute, strict=True)}); none was given; {plain}",
                )
            value = attribute.default
        if value is not None:
            if attribute.per_axis and type(value) is int and value >= attribute.minimum:  # A2
                _wrong_type(op, attribute, value, f". Use {per_axis(attribute.name, value, axes)}")
            if attribute.is_pad and isinstance(value, str) and value.lower() in SAME:  # A2
                _wrong_type(op, attribute, value, f". Use auto_pad={SAME[value.lower()]!r}")
            value = _TYPES[attribute.type](op, attribute, value)
            if attribute.per_axis:
                value = _per_axis(op, attribute, value, axes)
        if value is None and attribute.is_pad and not op.calculates_pads:
            value = (0,) * axes
        values[attribute.means] = value
    return Attributes(**values)


def is_placeholder(attribute: Attribute, value: object, axes: int) -> bool:
    """Return whether a value is the twelve zeros that oneDNN writes for an absent output_padding or shape.

    >>> from convgrad.spec.operators import find
    >>> padding = find("ConvTranspose").attribute("output_padding")
    >>> [is_placeholder(padding, (0,) * count, axes) for count, axes in ((12, 2), (12, 12), (2, 2))]
    [True, False, False]
    """
    is_shape = attribute.type == "s64[]" and not attribute.per_axis
    if not is_shape and attribute.means != "output_padding":
        return False
    legal = (axes, axes + 2) if is_shape else (axes,)
    return len(_ABSENT) not in legal and as_integers(value) == _ABSENT


def check_names(op: Operator, options: Mapping[str, object], axes: int = 0) -> None:
    """Raise by rule A1 if a given name is not an attribute. ``axes`` is the number of spatial axes; 0 if unknown."""
    names = [a.name for a in op.attributes]
    others = ((name, value) for name, value in options.items() if name not in names)
    unknown = [
        f"unknown attribute {name!r}. {_hint(op, name, value, axes)}" for name, value in islice(others, LISTED_NAMES)
    ]
    if unknown:  # A1
        refuse("A1", op.name, "; ".join(unknown))


def _hint(op: Operator, name: str, value: object, axes: int) -> str:
    """Return a hint about the right name for an attribute that an operator does not have."""
    names, meanings = [a.name for a in op.attributes], {a.name: a.means for row in OPERATORS for a in row.attributes}
    renamed = [a.name for a in op.attributes if a.means == meanings.get(name)]
    as_operand = [p for p in op.operands if name == p.name or (p.is_shape and is_shape_of(p.tensor, name))]
    if as_operand and not renamed:
        return f"Pass {as_operand[0].name} as operand number {op.operands.index(as_operand[0]) + 1}"
    similar = [] if name.endswith("_shape") else difflib.get_close_matches(name[:80].lower(), names, n=1, cutoff=0.7)
    near = renamed or similar
    hint = f"Did you mean {near[0]}?" if near else f"It has {', '.join(names) or 'none'}"
    return taught(op, name, value, axes) or hint


def as_integer(value: object) -> int | None:
    """Return an int for a Python or NumPy integer; None for anything else, including bool."""
    if type(value) is int:  # the usual case first, for speed
        return value
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):  # of a caller's own class
        return None


def as_integers(value: object) -> tuple[int, ...] | None:
    """Return a tuple of ints for a list, tuple or 1-D integer array; None for anything else, and if it is too long."""
    count = length(value)
    if count is None or count > LARGEST_RANK:
        return None
    if type(value) in (tuple, list) and set(map(type, value)) == _INT:  # type: ignore[call-overload]
        return tuple(value)  # type: ignore[arg-type]
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.dtype.kind in "iu" else None
    try:
        integers = [as_integer(item) for item in islice(value, count)]  # type: ignore[call-overload]
    except Exception:  # a caller's class may raise anything
        return None
    return None if None in integers else tuple(i for i in integers if i is not None)


def length(value: object) -> int | None:
    """Return the number of items of a sequence or a 1-D array; None for anything else.

    >>> length(range(10**9)), length("src"), length(memoryview(b"src")), length(iter([1]))
    (1000000000, None, 3, None)
    """
    if type(value) in (tuple, list):  # the usual case first, for speed
        return len(value)  # type: ignore[arg-type]
    try:
        if isinstance(value, np.ndarray | memoryview):
            return value.shape[0] if value.ndim == 1 and value.shape else None
        is_text = isinstance(value, str | bytes | bytearray)
        return len(value) if isinstance(value, Sequence) and not is_text else None
    except Exception:  # a caller's class may raise anything
        return None


def few(operator: str, name: str, value: Any) -> Any:
    """Return the integers of a sequence as a tuple, or an integer itself. They may be symbolic integers of a tracer.

    Raise by rules A2, A4 and A6 for values that cannot be an attribute of any operator.
    """
    is_list = isinstance(value, list | tuple)
    if is_list and len(value) > LARGEST_RANK:  # A6
        refuse("A6", operator, f"{name} must have at most {LARGEST_RANK} values; got {len(value)}")
    items = tuple(value) if is_list else as_integers(value)
    integers = items if items is not None else (as_integer(value) if isinstance(value, np.ndarray) else value,)
    # torch.compile cannot trace ``hasattr`` of a symbolic integer
    if not all((isinstance(i, int) or hasattr(i, "__index__")) and not isinstance(i, bool) for i in integers):  # A2
        got = f"got {shown(value)} ({type(value).__name__})"
        refuse("A2", operator, f"{name} must be an integer or a list of integers, one per spatial axis; {got}")
    if any(type(item) is int and abs(item) > S64_MAX for item in integers):  # A4
        refuse("A4", operator, f"{name} must be below 2^63; got {shown(value)}")
    return integers[0] if items is None else items


def as_items(value: object, maximum: int | None = None) -> tuple[Any, ...] | None:
    """Return the items of an iterable as a tuple, iterating only once; None for a string or a value without items.

    Return None, too, if there are more items than ``maximum``.

    >>> as_items(iter(["src"])), as_items("src"), as_items(1), as_items(range(10**9), maximum=2)
    (('src',), None, None, None)
    """
    try:
        items = None if isinstance(value, str | memoryview) else iter(value)  # type: ignore[call-overload]
    except TypeError:
        return None
    # Outside of ``try``, which would hide errors of the iterator.
    held = None if items is None else tuple(islice(items, None if maximum is None else maximum + 1))
    return None if maximum is not None and len(held or ()) > maximum else held


def _type_words(attribute: Attribute, strict: bool = False) -> str:
    return {
        "s64": "an integer",
        "s64[]": "a list of integers"
        + (", one per spatial axis" if attribute.per_axis else "")
        + (" (the functions also accept one integer)" if attribute.per_axis and not strict else ""),
        "string": "one of " + ", ".join(attribute.choices),
    }[attribute.type]


def _wrong_type(op: Operator, attribute: Attribute, value: object, hint: str = "") -> NoReturn:
    got = f"got {shown(value)} ({type(value).__name__}){hint}"
    refuse("A2", op.name, f"{attribute.name} must be {_type_words(attribute)}; {got}")


def _integer(op: Operator, attribute: Attribute, value: object) -> int:
    number = as_integer(value)
    if number is None:  # A2
        _wrong_type(op, attribute, value)
    _check_range(op, attribute, number, value)
    return number


def _integers(op: Operator, attribute: Attribute, value: object) -> tuple[int, ...]:
    numbers = as_integers(value)
    if numbers is None and (length(value) or 0) > LARGEST_RANK:  # A6
        sentence = f"{attribute.name} must have at most {LARGEST_RANK} values, as arrays have axes"
        refuse("A6", op.name, f"{sentence}; got {length(value)} ({type(value).__name__})")
    if numbers is None:  # A2
        _wrong_type(op, attribute, value)
    if attribute.per_axis:  # ``shapes.py`` checks the extents of shape attributes
        for number in numbers:
            _check_range(op, attribute, number, value)
    return numbers


def _check_range(op: Operator, attribute: Attribute, number: int, value: object) -> None:
    if not attribute.minimum <= number <= S64_MAX:  # A4
        minimum = "positive" if attribute.minimum == 1 else "non-negative"
        hint = ". Negative pads (cropping) are not supported" if attribute.is_pad else ""
        refuse("A4", op.name, f"{attribute.name} must be {minimum} and below 2^63; got {shown(value)}{hint}")


def _string(op: Operator, attribute: Attribute, value: object) -> str:
    if not isinstance(value, str):  # A2
        _wrong_type(op, attribute, value)
    spelled = dict(attribute.spellings).get(value.lower(), value)
    if spelled not in attribute.choices:  # A5
        choices = ", ".join(attribute.choices)
        refuse(
            "A5",
            op.name,
            f"{attribute.name} must be one of {choices}; got {shown(value)}{_choice_hint(attribute, value)}",
        )
    return spelled


def _choice_hint(attribute: Attribute, value: str) -> str:
    """Return a hint about a choice spelt as in another library, or about a layout of the other kind of operator."""
    layout = in_our_letters(value)
    spelt = CHOICES.get(attribute.means, {}).get(value.lower(), layout)
    if spelt in attribute.choices:
        what = "auto_pad" if attribute.means == "auto_pad" else "layout"
        known = " (PyTorch's 'same')" if value.lower() == "same" else ""
        return f". That {what} is called {spelt} here{known}"
    if layout in CONV_WEIGHTS and attribute.means == "weights_format":
        same = {"XIO": "XOI", "OIX": "IOX"}[layout]
        return (
            f". {layout} is a layout of the Convolution operators; for a transposed operator"
            f" {same} puts (in_channels, out_channels / groups) where {layout} puts (out, in / groups)"
        )
    if layout in TRANSPOSE_WEIGHTS and attribute.means == "weights_format":
        return f". {layout} is a layout of the ConvTranspose operators"
    return meant(value, attribute.choices)


_TYPES = {"s64": _integer, "s64[]": _integers, "string": _string}


def _per_axis(op: Operator, attribute: Attribute, values: tuple[int, ...], axes: int) -> tuple[int, ...] | None:
    if not values and not attribute.required:
        return None
    if len(values) != axes:  # A6
        sentence = f"{attribute.name} must have one value per spatial axis, {axes} here; got {list(values)}"
        hint = f". Use {per_axis(attribute.name, values[0], axes)}" if len(values) == 1 else ""
        if attribute.is_pad and len(values) == 2 * axes:
            hint = f". {taught(op, 'pads', values, axes)}"
        refuse("A6", op.name, sentence + hint)
    return values

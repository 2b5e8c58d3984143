"""The non-tensor arguments of an aten convolution as JSON: the check and the default value of each argument."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convgrad.errors import FileError
from convgrad.formats import FORMATS, Format, named
from convgrad.spec.operators import S64_MAX
from convgrad.verify.cases.json_values import parsed

BACKWARD, FORWARD = "aten.convolution_backward", "aten.convolution"
# For each operator: the tensors that it needs, and other tensors that a file may have (optional operands, results).
TENSORS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    BACKWARD: (("grad_output", "input", "weight"), ("grad_input", "grad_weight", "grad_bias")),
    FORWARD: (("input", "weight"), ("bias", "output")),
}


@dataclass(frozen=True)
class AtenArguments:
    """The checked non-tensor arguments of an aten convolution. A list of one number applies to every axis."""

    op: str
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    transposed: bool
    groups: int
    output_mask: tuple[bool, bool, bool]
    bias_sizes: tuple[int, ...] | None
    format: Format | None


def read_header(text: str, where: str) -> AtenArguments:
    """Return the arguments of a JSON text, or raise FileError that begins with ``where``.

    >>> read_header('{"op": "aten.convolution", "stride": [1], "padding": [-1], "dilation": [1]}', "a.npz: aten")
    Traceback (most recent call last):
        ...
    convgrad.errors.FileError: a.npz: aten.padding must be integers of at least 0; got [-1]: crop input instead
    """
    document = parsed(text, where)
    if not isinstance(document, dict):
        raise FileError(f"{where}: must be an object; got {type(document).__name__}")
    unknown = document.keys() - _FIELDS.keys()
    if unknown:
        raise FileError(f"{where} may have {', '.join(_FIELDS)}; got {min(unknown)!r:.80}")
    values = {}
    for name, (check, default) in _FIELDS.items():
        if name not in document and default is None:
            raise FileError(f"{where} must have {name}; it has {', '.join(document)!s:.200}")
        value = document.get(name, default)
        try:
            values["format" if name == "dtype" else name] = check(value)
        except ValueError as error:
            raise FileError(
                f"{where}.{name} must be {error}; got {json.dumps(value):.80}{_hint(name, value)}"
            ) from None
    return AtenArguments(**values)


def _hint(name: str, value: object) -> str:
    negative = isinstance(value, list) and any(type(item) is int and item < 0 for item in value)
    return ": crop input instead" if name == "padding" and negative else ""


def _integers(minimum: int) -> Callable[[object], tuple[int, ...]]:
    def check(value: object) -> tuple[int, ...]:
        values = value if isinstance(value, list) and value else [value]
        if not all(type(item) is int and minimum <= item <= S64_MAX for item in values):
            raise ValueError(f"integers of at least {minimum}")
        return tuple(values)

    return check


def _op(value: object) -> str:
    name = str(value).replace("::", ".").removesuffix(".default")
    if name not in TENSORS:
        raise ValueError(f"one of {', '.join(TENSORS)}")
    return name


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _groups(value: object) -> int:
    (groups,) = _integers(1)([value])
    return groups


def _mask(value: object) -> tuple[bool, ...]:
    if not isinstance(value, list) or len(value) != 3 or not all(isinstance(item, bool) for item in value):
        raise ValueError("three of true and false, for the gradients of input, weight and bias")
    return tuple(value)


def _sizes(value: object) -> tuple[int, ...] | None:
    return None if value in (None, [], [0]) else _integers(1)(value)


def _dtype(value: object) -> Format | None:
    fmt = named(value) if isinstance(value, str) and value else None
    if fmt is None and value != "":
        raise ValueError(f"one of {', '.join(FORMATS)}")
    return fmt


# For each field of a header: its check and its default value. A field with the default None is required.
_FIELDS: Mapping[str, tuple[Callable[[Any], Any], object]] = {
    "op": (_op, None),
    "stride": (_integers(1), None),
    "padding": (_integers(0), None),
    "dilation": (_integers(1), None),
    "transposed": (_truth, False),
    "output_padding": (_integers(0), [0]),
    "groups": (_groups, 1),
    "output_mask": (_mask, [True, True, True]),
    "bias_sizes": (_sizes, []),
    "dtype": (_dtype, ""),
}

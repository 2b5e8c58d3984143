"""Argument lists of PyTorch's aten.convolution_backward and aten.convolution, as a file of arrays with a JSON header.

The header stands under the key "aten": in .npz as an array of one string, in .safetensors in the metadata. Arrays have
PyTorch's names (``TENSORS``), batch and channels first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from convgrad import files
from convgrad.cases.case import Array, Arrays, Case
from convgrad.cases.scheme import as_format
from convgrad.errors import FileError
from convgrad.files import safetensors
from convgrad.formats import BF16, FORMATS, Format, named, of_dtype
from convgrad.graph.limits import Limits
from convgrad.spec.check import S64_MAX
from convgrad.spec.shapes import Shape

KEY = "aten"
KINDS = (".npz", ".safetensors")
BACKWARD, FORWARD = "aten.convolution_backward", "aten.convolution"
# Operators and the tensors they need; what else a file may have of them: operands that may be absent, results.
TENSORS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    BACKWARD: (("grad_output", "input", "weight"), ("grad_input", "grad_weight", "grad_bias")),
    FORWARD: (("input", "weight"), ("bias", "output")),
}


@dataclass(frozen=True)
class Header:
    """The arguments that are no tensors, checked; one number of a list stands for every axis."""

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


def matches(path: Path) -> bool:
    """Tell whether a file has arrays by key."""
    return path.suffix.lower() in KINDS and path.is_file()


def read(path: Path, limits: Limits) -> Iterator[Case]:
    """Give the cases of an argument list: one for each gradient of its mask, or the forward; or raise FileError."""
    header = read_header(_text(path, limits), f"{path}: {KEY}")
    needed, others = TENSORS[header.op]
    keys = [key for key in files.keys(path) if key != KEY]
    for key in needed:
        if key not in keys:
            raise FileError(f"{path}: {header.op} must have {', '.join(needed)}; {key} is missing")
    for key in keys:
        if key not in (*needed, *others):
            raise FileError(f"{path}: {header.op} may have {', '.join((*needed, *others))}; got {key!r:.80}")
    array = partial(_array, path, header, limits)
    operands = [key for key in keys if key in (*needed, "bias")]
    formats, shapes = _described({key: array(key) for key in operands}, path)
    attributes = _attributes(header, len(shapes["weight"]) - 2, path)
    for case in _cases(header, shapes, attributes, formats, path):
        read_in, made = _ROLES[case.operator]
        names = [key for key in read_in if key in keys]
        yield _with_arrays(case, array, names, made if made in keys else None)


_GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
_OPERATORS: Mapping[bool, tuple[str, str, str]] = {
    False: ("ConvolutionBackwardData", "ConvolutionBackwardWeights", "BiasAddBackward"),
    True: ("ConvTransposeBackwardData", "ConvTransposeBackwardWeights", "BiasAddBackward"),
}
# What each operator reads, in its order, and makes, in PyTorch's words.
_ROLES: Mapping[str, tuple[tuple[str, ...], str]] = {
    **{operators[0]: (("grad_output", "weight"), "grad_input") for operators in _OPERATORS.values()},
    **{operators[1]: (("input", "grad_output"), "grad_weight") for operators in _OPERATORS.values()},
    "BiasAddBackward": (("grad_output",), "grad_bias"),
    "Convolution": (("input", "weight", "bias"), "output"),
    "ConvTranspose": (("input", "weight", "bias"), "output"),
}


def _cases(
    header: Header, shapes: Mapping[str, Shape], attributes: Mapping[str, object], fmt: Format, path: Path
) -> Iterator[Case]:
    if header.op == FORWARD:
        operators: Sequence[str] = ["ConvTranspose" if header.transposed else "Convolution"]
    else:
        mask = header.output_mask
        operators = [name for name, wanted in zip(_OPERATORS[header.transposed], mask, strict=True) if wanted]
    # What an operator is told of the shape of its result, as an operand: the tensor that the gradient is of.
    told = {"ConvolutionBackwardData": "input"}
    told |= {operators[1]: "weight" for operators in _OPERATORS.values()}
    for operator in operators:
        given = [shapes[key] for key in _ROLES[operator][0] if key in shapes]
        given += [shapes[told[operator]]] if operator in told else []
        said: Mapping[str, object] = attributes
        if operator == "BiasAddBackward":
            said = {"data_format": "NCX"}
            channels = shapes["grad_output"][1:2]
            if header.bias_sizes not in (None, channels):
                wanted = f"[{channels[0] if channels else '?'}], the channels of grad_output"
                raise FileError(f"{path}: {KEY}.bias_sizes must be {wanted}; got {list(header.bias_sizes or ())}")
        yield Case(f"{path.stem}_{operator}", str(path), operator, tuple(given), said, fmt, fmt)


def _with_arrays(case: Case, array: Callable[[str], Array], names: Sequence[str], made: str | None) -> Case:
    def arrays() -> Arrays:
        return Arrays(tuple(map(array, names)), array(made) if made else None)

    return replace(case, arrays=arrays)


def _attributes(header: Header, axes: int, path: Path) -> dict[str, object]:
    """Return the attributes of a convolution of so many spatial axes."""
    if axes < 1:
        raise FileError(f"{path}: weight must have an axis of its own for each spatial one; it has {axes + 2} axes")

    def spread(name: str) -> list[int]:
        values: tuple[int, ...] = getattr(header, name)
        if len(values) not in (1, axes):
            raise FileError(f"{path}: {KEY}.{name} must be one number, or one for each of {axes} axes; got {values}")
        return list(values) * (axes // len(values))

    found: dict[str, object] = {
        "strides": spread("stride"),
        "pads_begin": spread("padding"),
        "pads_end": spread("padding"),
        "dilations": spread("dilation"),
        "groups": header.groups,
        "data_format": "NCX",
        "weights_format": "IOX" if header.transposed else "OIX",
    }
    padding = spread("output_padding")
    if any(padding) and not header.transposed:
        raise FileError(f"{path}: {KEY}.output_padding must be 0 where transposed is false; got {padding}")
    return found | ({"output_padding": padding} if header.transposed else {})


def _described(arrays: Mapping[str, Array], path: Path) -> tuple[Format, dict[str, Shape]]:
    formats = {key: of_dtype(array.dtype) for key, array in arrays.items()}
    for key, fmt in formats.items():
        if fmt is None:
            hint = '; bits of bf16 need "dtype": "bf16" in the header' if arrays[key].dtype == np.uint16 else ""
            raise FileError(f"{path}: {key} must be of {', '.join(FORMATS)}; got {arrays[key].dtype}{hint}")
    found = {str(fmt): fmt for fmt in formats.values()}
    if len(found) > 1:
        said = ", ".join(f"{key} {fmt}" for key, fmt in formats.items())
        raise FileError(f"{path}: operands must be of one type; got {said}")
    (fmt,) = found.values()
    assert fmt is not None
    return fmt, {key: array.shape for key, array in arrays.items()}


def _array(path: Path, header: Header, limits: Limits, key: str) -> Array:
    array = files.read(f"{path}:{key}", limits.memory_bytes)
    return as_format(array, BF16) if header.format is BF16 else array


def _text(path: Path, limits: Limits) -> str:
    """Return the header of a file, as it stands there."""
    if path.suffix.lower() == ".safetensors":
        text = safetensors.metadata(path).get(KEY)
    else:
        array = files.read(f"{path}:{KEY}", limits.file_bytes) if KEY in files.keys(path) else None
        text = str(array.reshape(-1)[0]) if array is not None and array.dtype.kind == "U" and array.size == 1 else None
    if text is None:
        where = "its metadata" if path.suffix.lower() == ".safetensors" else "an array of one string"
        raise FileError(f"{path}: must have the arguments as JSON under {KEY!r}, {where}")
    return text


# -- the header --------------------------------------------------------------------------------------------------------


def read_header(text: str, where: str) -> Header:
    """Return the arguments of a JSON text, or raise FileError that begins with ``where``.

    >>> read_header('{"op": "aten.convolution", "stride": [1], "padding": [-1], "dilation": [1]}', "a.npz: aten")
    Traceback (most recent call last):
        ...
    convgrad.errors.FileError: a.npz: aten.padding must be integers of at least 0; got [-1]: crop input instead
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{where}:{error.lineno}:{error.colno}: must be JSON; {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{where}: must be JSON; {error}") from None
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
    return Header(**values)


def _hint(name: str, value: object) -> str:
    negative = isinstance(value, list) and any(type(item) is int and item < 0 for item in value)
    return ": crop input instead" if name == "padding" and negative else ""


def _integers(least: int) -> Callable[[object], tuple[int, ...]]:
    def check(value: object) -> tuple[int, ...]:
        values = value if isinstance(value, list) and value else [value]
        if not all(type(item) is int and least <= item <= S64_MAX for item in values):
            raise ValueError(f"integers of at least {least}")
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


# The fields of a header: what each must be, and what it is where it is left out; None: it must be there.
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

"""Argument lists of PyTorch's aten.convolution_backward and aten.convolution, as a file of arrays with a JSON header.

The header (``aten_header.py``) has the key "aten": in .npz it is an array of one string, in .safetensors it is in the
metadata. Arrays have PyTorch's names (see ``TENSORS``) and PyTorch's order of axes, batch and channels first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from convgrad import files
from convgrad.array_types import Array
from convgrad.errors import ConvgradError, FileError
from convgrad.files import safetensors
from convgrad.formats import FORMATS, Format, of_dtype
from convgrad.graph.limits import Limits
from convgrad.spec.layouts import shape_words
from convgrad.spec.shapes import Shape
from convgrad.verify.cases.aten_header import FORWARD, TENSORS, AtenArguments, read_header
from convgrad.verify.cases.case import Arrays, Case

KEY = "aten"
KINDS = (".npz", ".safetensors")


def matches(path: Path) -> bool:
    """Return whether a file is of a kind that stores arrays by key."""
    return path.suffix.lower() in KINDS and path.is_file()


def is_foreign(path: Path, limits: Limits) -> bool:
    """Return whether a file has only arrays, such as operands or results of cases."""
    try:
        return _text(path, limits) is None
    except ConvgradError:  # the reader reports it
        return False


def read(path: Path, limits: Limits) -> Iterator[Case]:
    """Yield a case for each gradient that ``output_mask`` selects, or one case of the forward; or raise FileError."""
    text = _text(path, limits)
    if text is None:
        where = "its metadata" if path.suffix.lower() == ".safetensors" else "an array of one string"
        raise FileError(f"{path}: must have the arguments as JSON under {KEY!r}, {where}")
    header = read_header(text, f"{path}: {KEY}")
    needed, others = TENSORS[header.op]
    keys = [key for key in files.keys(path) if key != KEY]
    for key in needed:
        if key not in keys:
            raise FileError(f"{path}: {header.op} must have {', '.join(needed)}; {key} is missing")
    for key in keys:
        if key not in (*needed, *others):
            raise FileError(f"{path}: {header.op} may have {', '.join((*needed, *others))}; got {key!r:.80}")
    array = partial(_array, path, header)
    operands = [key for key in keys if key in (*needed, "bias")]
    formats, shapes = _described(((key, array(key, limits.memory_bytes)) for key in operands), path)
    attributes = _attributes(header, len(shapes["weight"]) - 2, path)
    for case in _cases(header, shapes, attributes, formats, path):
        read_in, result = _TENSORS[case.operator]
        names = [key for key in read_in if key in keys]
        yield replace(
            case, arrays=partial(_arrays, array, names, result if result in keys else None, limits.memory_bytes)
        )


_OPERATORS: Mapping[bool, tuple[str, str, str]] = {
    False: ("ConvolutionBackwardData", "ConvolutionBackwardWeights", "BiasAddBackward"),
    True: ("ConvTransposeBackwardData", "ConvTransposeBackwardWeights", "BiasAddBackward"),
}
# For each operator: PyTorch's names of its operands, in the operator's order, and of its result.
_TENSORS: Mapping[str, tuple[tuple[str, ...], str]] = {
    **{operators[0]: (("grad_output", "weight"), "grad_input") for operators in _OPERATORS.values()},
    **{operators[1]: (("input", "grad_output"), "grad_weight") for operators in _OPERATORS.values()},
    "BiasAddBackward": (("grad_output",), "grad_bias"),
    "Convolution": (("input", "weight", "bias"), "output"),
    "ConvTranspose": (("input", "weight", "bias"), "output"),
}


def _cases(
    header: AtenArguments, shapes: Mapping[str, Shape], attributes: Mapping[str, object], fmt: Format, path: Path
) -> Iterator[Case]:
    if header.op == FORWARD:
        operators: Sequence[str] = ["ConvTranspose" if header.transposed else "Convolution"]
    else:
        mask = header.output_mask
        operators = [name for name, wanted in zip(_OPERATORS[header.transposed], mask, strict=True) if wanted]
    # The tensor whose shape is the operator's shape operand: the gradient by a tensor has the tensor's shape.
    shape_operands = {"ConvolutionBackwardData": "input"}
    shape_operands |= {operators[1]: "weight" for operators in _OPERATORS.values()}
    for operator in operators:
        operand_shapes = [shapes[key] for key in _TENSORS[operator][0] if key in shapes]
        operand_shapes += [shapes[shape_operands[operator]]] if operator in shape_operands else []
        said: Mapping[str, object] = attributes
        if operator == "BiasAddBackward":
            said = {"data_format": "NCX"}
            channels = shapes["grad_output"][1:2]
            if header.bias_sizes not in (None, channels):
                wanted = f"[{channels[0] if channels else '?'}], the channels of grad_output"
                raise FileError(f"{path}: {KEY}.bias_sizes must be {wanted}; got {list(header.bias_sizes or ())!s:.80}")
        case = Case(f"{path.stem}_{operator}", str(path), operator, tuple(operand_shapes), said, fmt, fmt)
        takes_shape = operator != "ConvTransposeBackwardData"  # whose result must have the shape of input too
        result_shape = None if takes_shape else _result_shape(case)
        if result_shape not in (None, shapes["input"]):
            wanted = f"input must be {shape_words(result_shape or ())} by grad_output, weight and the arguments"
            raise FileError(f"{path}: {wanted}; got {shape_words(shapes['input'])}")
        yield case


def _result_shape(case: Case) -> Shape | None:
    """Return the shape of a case's result, or None if its problem is invalid, which the reader of all cases reports."""
    try:
        return case.posed()[1].output_shape
    except ConvgradError:
        return None


def _arrays(array: Callable[[str, int], Array], names: Sequence[str], result: str | None, memory_bytes: int) -> Arrays:
    """Return the arrays of a case, which must have at most ``memory_bytes`` bytes together."""
    arrays: list[Array] = []
    for name in (*names, *([result] if result else [])):
        arrays.append(array(name, memory_bytes))
        memory_bytes -= arrays[-1].nbytes
    return Arrays(tuple(arrays[: len(names)]), arrays[-1] if result else None)


def _attributes(header: AtenArguments, axes: int, path: Path) -> dict[str, object]:
    """Return the attributes of a convolution with ``axes`` spatial axes."""
    if axes < 1:
        raise FileError(f"{path}: weight must have an axis of its own for each spatial one; it has {axes + 2} axes")

    def spread(name: str) -> list[int]:
        values: tuple[int, ...] = getattr(header, name)
        if len(values) not in (1, axes):
            raise FileError(
                f"{path}: {KEY}.{name} must be one number, or one for each of {axes} axes; got {values!s:.80}"
            )
        return list(values) * (axes // len(values))

    attributes: dict[str, object] = {
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
        raise FileError(f"{path}: {KEY}.output_padding must be 0 where transposed is false; got {padding!s:.200}")
    return attributes | ({"output_padding": padding} if header.transposed else {})


def _described(arrays: Iterable[tuple[str, Array]], path: Path) -> tuple[Format, dict[str, Shape]]:
    """Return the common format and the shapes of some arrays, keeping one array in memory at a time."""
    formats: dict[str, Format] = {}
    shapes: dict[str, Shape] = {}
    for key, array in arrays:
        fmt = of_dtype(array.dtype)
        if fmt is None:
            hint = '; bits of bf16 need "dtype": "bf16" in the header' if array.dtype == np.uint16 else ""
            raise FileError(f"{path}: {key} must be of {', '.join(FORMATS)}; got {array.dtype}{hint}")
        formats[key], shapes[key] = fmt, array.shape
    if len(set(formats.values())) > 1:
        said = ", ".join(f"{key} {fmt}" for key, fmt in formats.items())
        raise FileError(f"{path}: operands must be of one type; got {said}")
    return next(iter(formats.values())), shapes


def _array(path: Path, header: AtenArguments, key: str, memory_bytes: int) -> Array:
    return files.read(f"{path}:{key}", memory_bytes, header.format)


def _text(path: Path, limits: Limits) -> str | None:
    """Return the header of a file as text, or None if the file has none."""
    if path.suffix.lower() == ".safetensors":
        text = safetensors.metadata(path).get(KEY)
    else:
        array = files.read(f"{path}:{KEY}", limits.file_bytes) if KEY in files.keys(path) else None
        text = str(array.reshape(-1)[0]) if array is not None and array.dtype.kind == "U" and array.size == 1 else None
    return text

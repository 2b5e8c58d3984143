"""The sources of an ONNX array: a tensor of the model, a file of a test's set, or only a type and a shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from convgrad.cases.case import Array
from convgrad.disk import read_bytes
from convgrad.errors import FileError
from convgrad.formats import Format, of_program
from convgrad.graph.limits import Limits
from convgrad.words import printable

FORMATS = of_program("onnx")


@dataclass(frozen=True)
class Source:
    """An operand or a result: its shape, format and file, and ONNX's message with its elements, or None."""

    name: str
    shape: tuple[int, ...]
    format: Format
    message: Any
    file: Path

    @property
    def size_bytes(self) -> int:
        """The size of the array in bytes."""
        return prod(self.shape) * self.format.dtype.itemsize

    def read(self) -> Array:
        """Return the array, or raise FileError if its elements contradict its dims."""
        from onnx import numpy_helper  # noqa: PLC0415 - an extra

        try:
            return np.asarray(numpy_helper.to_array(self.message)).view(self.format.dtype).reshape(self.shape)
        except Exception as error:  # the onnx package and NumPy raise exceptions of different classes
            said = printable(str(error), 200)
            raise FileError(f"{self.file}: {self.name} must have the elements that its dims say; {said}") from error


def package() -> Any:
    """Return the module ``onnx``, or raise FileError with the command that installs it."""
    try:
        import onnx  # noqa: PLC0415 - an extra, needed for these files only
    except ImportError as error:
        raise FileError("ONNX models need the onnx package: pip install onnx") from error
    return onnx


def parsed(message: Any, file: Path, limits: Limits) -> Any:
    """Return ``message`` after it is parsed from a file of at most ``limits.file_bytes`` bytes."""
    data = read_bytes(file, limits.file_bytes + 1)
    if len(data) > limits.file_bytes:
        raise FileError(f"{file}: must have at most {limits.file_bytes} bytes (file_bytes); it has more")
    try:
        message.ParseFromString(data)
    except Exception as error:  # the parser has its own exception class
        raise FileError(f"{file}: must be a message of ONNX; {printable(str(error), 200)}") from error
    return message


def text(field: str | bytes) -> str:
    """Return a text field, which may be bytes, as a string. Bytes that are not UTF-8 are replaced."""
    return field.decode("utf-8", "replace") if isinstance(field, bytes) else field


def of_file(name: str, file: Path, limits: Limits) -> Source:
    """Return the source of an array that is the tensor of a file."""
    return of_tensor(name, parsed(package().TensorProto(), file, limits), file)


def of_tensor(name: str, tensor: Any, file: Path) -> Source:
    """Return the source of a tensor, or raise FileError if its data are external."""
    if tensor.data_location == tensor.EXTERNAL:
        raise FileError(f"{file}: {printable(name)} must lie in the file itself; its data are external")
    return _source(name, tensor.dims, tensor.data_type, tensor, file)


def of_type(name: str, described: Any, file: Path) -> Source:
    """Return the source of an array that has only a type, or raise FileError if an extent is unknown."""
    dims = [d.dim_value if d.HasField("dim_value") else None for d in described.shape.dim]
    if None in dims:
        shown = ", ".join("?" if d is None else str(d) for d in dims)
        raise FileError(f"{file}: without arrays the shape of {printable(name)} must be known; got ({shown})")
    return _source(name, [d for d in dims if d is not None], described.elem_type, None, file)


def _source(name: str, dims: Sequence[int], data_type: int, message: Any, file: Path) -> Source:
    types = package().TensorProto.DataType
    kind = types.Name(data_type) if data_type in types.values() else f"of type {data_type}"
    if kind not in FORMATS:
        raise FileError(f"{file}: {printable(name)} must be {', '.join(FORMATS)}; it is {kind}")
    if min(dims, default=0) < 0:
        raise FileError(f"{file}: the dims of {printable(name)} must not be negative; got {list(dims)}")
    return Source(printable(name), tuple(dims), FORMATS[kind], message, file)

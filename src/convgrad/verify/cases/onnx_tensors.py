"""The sources of an ONNX array: a tensor of the model, a file of a test's set, or only a type and a shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from convgrad.array_types import Array
from convgrad.disk import read_bytes
from convgrad.errors import FileError
from convgrad.formats import Format, of_program
from convgrad.graph.limits import Limits
from convgrad.words import printable

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto, TypeProto

FORMATS = of_program("onnx")


class Message(Protocol):
    """A message of protocol buffers."""

    def ParseFromString(self, serialized: bytes, /) -> object:
        """Replace the contents of the message by those of its serialized form."""


M = TypeVar("M", bound=Message)


class UnknownError(Exception):
    """The model does not determine the type or the shape of a tensor."""


@dataclass(frozen=True)
class OnnxTensor:
    """An operand or a result: its shape, format and file, and ONNX's message with its elements, or None."""

    name: str
    shape: tuple[int, ...]
    format: Format
    message: TensorProto | None
    file: Path

    @property
    def size_bytes(self) -> int:
        """The size of the array in bytes."""
        return prod(self.shape) * self.format.itemsize

    def read(self) -> Array:
        """Return the array, or raise FileError if its elements contradict its dims."""
        from onnx import numpy_helper  # noqa: PLC0415 - an extra

        assert self.message is not None, "only sources with elements are read"
        try:
            return np.asarray(numpy_helper.to_array(self.message)).view(self.format.dtype).reshape(self.shape)
        except Exception as error:  # the onnx package and NumPy raise exceptions of different classes
            said = printable(str(error), 200)
            raise FileError(f"{self.file}: {self.name} must have the elements that its dims say; {said}") from error


def package() -> ModuleType:
    """Return the module ``onnx``, or raise FileError with the command that installs it."""
    try:
        import onnx  # noqa: PLC0415 - an extra, needed for these files only
    except ImportError as error:
        raise FileError("ONNX models need the onnx package: pip install onnx") from error
    module: ModuleType = onnx
    return module


def parsed(message: M, file: Path, limits: Limits) -> M:
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


def of_file(name: str, file: Path, limits: Limits) -> OnnxTensor:
    """Return the source of an array that is the tensor of a file."""
    return of_tensor(name, parsed(package().TensorProto(), file, limits), file)


def of_tensor(name: str, tensor: TensorProto, file: Path) -> OnnxTensor:
    """Return the source of a tensor, or raise FileError if its data are external."""
    if tensor.data_location == tensor.EXTERNAL:
        raise FileError(f"{file}: {printable(name)} must lie in the file itself; its data are external")
    return _source(name, tensor.dims, tensor.data_type, tensor, file)


def of_dims(name: str, tensor: TensorProto, file: Path) -> OnnxTensor:
    """Return the source of a tensor without its elements, which may be external."""
    return _source(name, tensor.dims, tensor.data_type, None, file)


def of_type(name: str, described: TypeProto.Tensor, file: Path) -> OnnxTensor:
    """Return the source of an array that has only a type, or raise UnknownError if an extent is unknown."""
    dims = _dims(described)
    if not described.HasField("shape") or None in dims:
        shown = f"({', '.join('?' if d is None else str(d) for d in dims)})" if described.HasField("shape") else "none"
        raise UnknownError(f"without arrays the shape of {printable(name)} must be known; got {shown}")
    return _source(name, [d for d in dims if d is not None], described.elem_type, None, file)


def _dims(described: TypeProto.Tensor) -> list[int | None]:
    return [d.dim_value if d.HasField("dim_value") else None for d in described.shape.dim]


class Tensors:
    """The tensors of a model by name. ``first_set`` is a folder of arrays that fit the model, or None."""

    def __init__(self, model: ModelProto, file: Path, first_set: Path | None, limits: Limits) -> None:
        self._model, self._file, self._first_set, self._limits = model, file, first_set, limits
        graph = model.graph
        self._inside = {text(tensor.name): tensor for tensor in graph.initializer}
        self._inputs = [value for value in graph.input if text(value.name) not in self._inside]
        self._numbers = {text(value.name): number for number, value in enumerate(self._inputs)}
        self._outputs = {text(value.name): number for number, value in enumerate(graph.output)}
        self._computed = {text(name) for node in graph.node for name in node.output}
        self._described = {text(value.name): value.type.tensor_type for value in (*graph.value_info, *graph.output)}
        self._inferred: dict[str, TypeProto.Tensor] | None = None

    def has_array(self, name: str) -> bool:
        """Return whether a set of arrays gives a tensor's array, because no node computes the tensor."""
        return name in self._inside or name in self._numbers

    def source(self, name: str, folder: Path | None) -> OnnxTensor:
        """Return the source of a tensor: an array of the model or of the set in a folder, or else a type."""
        if name in self._inside:
            tensor = self._inside[name]
            return of_tensor(name, tensor, self._file) if folder else of_dims(name, tensor, self._file)
        if name in self._numbers:
            number = self._numbers[name]
            if folder:
                return of_file(name, folder / f"input_{number}.pb", self._limits)
            return of_type(name, self._inputs[number].type.tensor_type, self._file)
        if name not in self._computed:
            sentence = "must be an input of the graph, a tensor of the model or the result of a node; it is none"
            raise FileError(f"{self._file}: {printable(name)} {sentence}")
        described = self._described.get(name)
        if described is None or not described.HasField("shape") or None in _dims(described):
            described = self._inferred_types().get(name, described)
        if described is None:
            raise UnknownError(f"without arrays the shape of {printable(name)} must be known; got none")
        return of_type(name, described, self._file)

    def output(self, name: str, folder: Path | None) -> Path | None:
        """Return the file of a set with a result of the model, or None if there is none of this name."""
        file = folder / f"output_{self._outputs[name]}.pb" if folder and name in self._outputs else None
        return file if file and file.is_file() else None

    def _take_dims(self, model: ModelProto, folder: Path) -> None:
        """Set the extents of a model's inputs to those of the arrays of a set."""
        for value in model.graph.input:
            file = folder / f"input_{self._numbers.get(text(value.name))}.pb"
            dims = parsed(package().TensorProto(), file, self._limits).dims if file.is_file() else ()
            for dim, extent in zip(value.type.tensor_type.shape.dim, dims, strict=False):
                dim.dim_value = extent

    def _inferred_types(self) -> dict[str, TypeProto.Tensor]:
        """Return the types that ONNX's shape inference finds, for the shapes of the first set of arrays if any."""
        if self._inferred is None:
            self._inferred = {}
            onnx = package()
            model = onnx.ModelProto()
            model.CopyFrom(self._model)
            del model.graph.value_info[:]
            try:
                if self._first_set:
                    self._take_dims(model, self._first_set)
                graph = onnx.shape_inference.infer_shapes(model).graph
            except Exception:  # the model is invalid; nodes whose types the model itself has can be read
                return self._inferred
            self._inferred = {text(value.name): value.type.tensor_type for value in (*graph.value_info, *graph.output)}
        return self._inferred


def _source(name: str, dims: Sequence[int], data_type: int, message: TensorProto | None, file: Path) -> OnnxTensor:
    types = package().TensorProto.DataType
    kind = types.Name(data_type) if data_type in types.values() else f"of type {data_type}"
    if kind not in FORMATS:
        raise FileError(f"{file}: {printable(name)} must be {', '.join(FORMATS)}; it is {kind}")
    if min(dims, default=0) < 0:
        raise FileError(f"{file}: the dims of {printable(name)} must not be negative; got {list(dims)}")
    return OnnxTensor(printable(name), tuple(dims), FORMATS[kind], message, file)

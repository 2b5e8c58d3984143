"""The schema of an operator of PyTorch's dispatcher, from the parameters of the function that declares the operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from torch import Tensor

from convgrad.torch.attributes import OpAttributes
from convgrad.torch.extents import Ints

_OMITTED = "output_padding"
Like = Annotated[Tensor | None, "like"]  # of such a tensor, only the shape is read, so it has no derivative
Unpadded = Annotated[OpAttributes, _OMITTED]  # the attributes of an operator without output_padding, which is None
_TYPES = {Tensor: "Tensor", Ints: "SymInt[]", int: "SymInt", float: "float", bool: "bool"}


class _Argument(NamedTuple):
    """An argument of a schema: its name and type in the dispatcher's language, and its default as text."""

    name: str
    type: str
    default: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}{self.default}"


class Schema(NamedTuple):
    """The arguments of an operator: those that its function takes, then the fields of OpAttributes, if it has any."""

    text: str
    tensors: int  # the number of leading arguments that have derivatives
    operands: int  # the number of leading arguments that are tensors
    heads: int  # the number of arguments before the fields of the OpAttributes
    arguments: int  # the number of all arguments
    omitted: int | None  # the index of the field of OpAttributes that is not an argument

    def flat(self, args: tuple[object, ...]) -> tuple[object, ...]:
        """Return the arguments of the schema from arguments that may end with OpAttributes."""
        layer = args[-1]
        if not isinstance(layer, OpAttributes):
            return args
        at = self.omitted
        return (*args[:-1], *layer) if at is None else (*args[:-1], *layer[:at], *layer[at + 1 :])

    def gathered(self, args: tuple[Any, ...]) -> tuple[object, ...]:
        """Return the first arguments of the schema, and the others, if there are any, as OpAttributes."""
        first, others = args[: self.heads], args[self.heads :]
        if not others:
            return first
        if self.omitted is not None:
            others = (*others[: self.omitted], None, *others[self.omitted :])
        return (*first, OpAttributes(*others))


def schema_of(declaration: Callable[..., object]) -> Schema:
    """Return the schema of the operator that a function declares by the names and types of its parameters.

    >>> def product(a: Tensor, b: Tensor | None, size: Like, layer: Unpadded) -> object: ...
    >>> schema_of(product).text.partition(" pads_end")[0]
    'Tensor a, Tensor? b, Tensor? size, SymInt[] strides, SymInt[]? pads_begin, SymInt[]?'
    """
    hints = get_type_hints(declaration, include_extras=True)
    kinds = [hints[name] for name in inspect.signature(declaration).parameters]
    heads = [_argument(name, hints[name]) for name in inspect.signature(declaration).parameters if name != "layer"]
    fields = list(OpAttributes._fields) if "layer" in hints else []
    omitted = None
    if hints.get("layer") == Unpadded:
        omitted = fields.index(_OMITTED)
        del fields[omitted]
    types = get_type_hints(OpAttributes)
    arguments = [*heads, *[_argument(name, types[name], OpAttributes._field_defaults) for name in fields]]
    tensors = sum(kind in (Tensor, Tensor | None) for kind in kinds)
    operands = tensors + kinds.count(Like)
    return Schema(", ".join(map(str, arguments)), tensors, operands, len(heads), len(arguments), omitted)


def _argument(name: str, kind: object, defaults: Mapping[str, object] | None = None) -> _Argument:
    plain = get_args(kind)[0] if kind == Like else kind
    optional = NoneType in get_args(plain)
    (of, *_) = get_args(plain) if optional else (plain,)
    default = (defaults or {}).get(name, Parameter.empty)
    return _Argument(name, _TYPES[of] + "?" * optional, "" if default is Parameter.empty else f"={default}")

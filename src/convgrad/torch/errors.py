"""The errors of PyTorch's layers: convgrad's errors, which are also RuntimeErrors, as PyTorch's own refusals are."""

from __future__ import annotations

from convgrad import errors
from convgrad.errors import ConvgradError


class InvalidOpError(errors.InvalidOpError, RuntimeError):
    """An operator that is unknown, or got a number of operands that it does not take, in a layer of PyTorch."""


class InvalidAttributeError(errors.InvalidAttributeError, RuntimeError):
    """An attribute of a layer of PyTorch that is of the wrong type or out of its range."""


class InvalidShapeError(errors.InvalidShapeError, RuntimeError):
    """Shapes of PyTorch's tensors that do not fit the layer, its attributes or each other."""


class InvalidDataTypeError(errors.InvalidDataTypeError, RuntimeError):
    """A type of PyTorch's tensors that is not supported, or types that differ although they must agree."""


_BY_NAME = {
    kind.__name__: kind for kind in (InvalidOpError, InvalidAttributeError, InvalidShapeError, InvalidDataTypeError)
}


def runtime_error(error: ConvgradError) -> ConvgradError:
    """Return an error as a RuntimeError of the same kind, with the same message.

    An UnsupportedError is a NotImplementedError, which is a RuntimeError.
    """
    if isinstance(error, RuntimeError):
        return error
    kind = _BY_NAME.get(type(error).__name__)
    return error if kind is None else kind(*error.args)

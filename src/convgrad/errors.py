"""The exceptions of convgrad. Each derives from ConvgradError and from a similar builtin exception."""

from convgrad.words import printable


class ConvgradError(Exception):
    """The base class of all convgrad errors. The message has only printable characters."""

    def __str__(self) -> str:
        """Return the message with each unprintable character, such as a line break, replaced by a question mark."""
        return printable(super().__str__(), None)


class InvalidOpError(ConvgradError, ValueError):
    """The operator is unknown, or got a number of operands that it does not take."""


class InvalidAttributeError(ConvgradError, ValueError):
    """An attribute is unknown, missing, of the wrong type, or out of its range."""


class InvalidShapeError(ConvgradError, ValueError):
    """Shapes that do not fit the operator, its attributes or each other, or an ``out`` that cannot be written to."""


class InvalidDataTypeError(ConvgradError, TypeError):
    """A number format that is not supported, or formats that differ although they must agree."""


class UnsupportedError(ConvgradError, NotImplementedError):
    """A legal request that this build does not support."""


class GraphError(ConvgradError, ValueError):
    """An error in a graph or in a graph file. The original error, if there is one, is its ``__cause__``."""


class NotationError(ConvgradError, ValueError):
    """A problem line that cannot be read, or a problem that the notation cannot express."""


class FileError(ConvgradError, ValueError):
    """A file that is missing, damaged, of an unknown kind, too large, or not writable."""

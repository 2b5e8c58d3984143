"""All exceptions that convgrad raises, under one root; each also derives from the builtin that a caller expects."""

from convgrad.words import printable


class ConvgradError(Exception):
    """The root of all convgrad errors; the message is printable, whatever names and keys it quotes."""

    def __str__(self) -> str:
        """Return the message, one line of printable characters."""
        return printable(super().__str__(), None)


class InvalidOpError(ConvgradError, ValueError):
    """The operator is unknown, or got a number of operands that it does not take."""


class InvalidAttributeError(ConvgradError, ValueError):
    """An attribute is unknown, missing, of the wrong type, or out of its range."""


class InvalidShapeError(ConvgradError, ValueError):
    """Shapes that do not fit the operator, its attributes, or each other; an ``out`` that cannot be written."""


class InvalidDataTypeError(ConvgradError, TypeError):
    """A number format that is not supported, or formats that differ although they must agree."""


class UnsupportedError(ConvgradError, NotImplementedError):
    """A legal request that this build does not support."""


class GraphError(ConvgradError, ValueError):
    """An error in a graph or in a graph file; raised from its cause."""


class NotationError(ConvgradError, ValueError):
    """A problem line that cannot be read, or a problem that the notation cannot express."""


class FileError(ConvgradError, ValueError):
    """A file that is missing, damaged, of an unknown kind, too large, or not writable."""

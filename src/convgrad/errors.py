"""Every exception convgrad raises, under one root; each also derives from the builtin a caller would expect."""

from convgrad.words import printable


class ConvgradError(Exception):
    """The root of all convgrad errors; whatever names and keys a message quotes, it can be printed."""

    def __str__(self) -> str:
        """Return the message, one line of printable characters."""
        return printable(super().__str__(), None)


class InvalidOpError(ConvgradError, ValueError):
    """The operator is unknown, or was given a number of operands it does not take."""


class InvalidAttributeError(ConvgradError, ValueError):
    """An attribute is unknown, missing, of the wrong type, or out of its range."""


class InvalidShapeError(ConvgradError, ValueError):
    """Shapes that do not fit the operator, its attributes, or each other; an ``out`` that cannot be written."""


class InvalidDataTypeError(ConvgradError, TypeError):
    """A number format that is not supported, or formats that differ where they must agree."""


class UnsupportedError(ConvgradError, NotImplementedError):
    """A legal request that this build cannot serve."""


class GraphError(ConvgradError, ValueError):
    """Something is wrong in a graph or in a graph file; raised from its cause."""


class NotationError(ConvgradError, ValueError):
    """A problem line that cannot be read, or a problem the notation cannot say."""


class FileError(ConvgradError, ValueError):
    """A file that is missing, damaged, of an unknown kind, too large, or cannot be written."""

"""Cases to check: problems, with arrays if their notation includes arrays, and the readers of all notations."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from convgrad.array_types import Array
from convgrad.disk import why
from convgrad.errors import ConvgradError, FileError, NotationError
from convgrad.graph.limits import DEFAULT_LIMITS, Limits
from convgrad.verify.cases import aten, hipdnn, hlo, lines, onednn_graph, onnx
from convgrad.verify.cases.case import Arrays, Case, NoCaseError, PassedOverError, Reading
from convgrad.verify.cases.naming import named_apart
from convgrad.verify.cases.place import TYPED

__all__ = ["DIALECTS", "Array", "Arrays", "Case", "Dialect", "NoCaseError", "PassedOverError", "read"]

# The endings of files that are often in the same folder as cases but are not lists of lines, such as arrays.
BESIDE = (".npy", ".npz", ".safetensors", ".pt", ".bin", ".pb", ".md", ".py", ".xml", ".png")


@dataclass(frozen=True)
class Dialect:
    """A notation: a test whether a file is written in the notation, and a reader of the cases.

    ``is_foreign`` returns whether a file of a folder, although it matches, has nothing to do with cases. ``has_beside``
    returns whether a file that does not match belongs to a file of the notation.
    """

    name: str
    matches: Callable[[Path], bool]
    read: Callable[[Path, Limits], Iterator[Reading]]
    is_foreign: Callable[[Path, Limits], bool] = lambda path, limits: False
    has_beside: Callable[[Path], bool] = lambda path: False

    def readings(self, path: Path, limits: Limits) -> Iterator[Reading]:
        """Yield the cases of a file. An error that ends the reading is yielded last."""
        try:
            yield from self.read(path, limits)
        except ConvgradError as error:
            yield error


def _is_lines(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() not in (".json", *BESIDE)


# The first dialect that matches is used.
DIALECTS: tuple[Dialect, ...] = (
    Dialect("hipDNN bundles", hipdnn.matches, hipdnn.read, has_beside=hipdnn.has_beside),
    Dialect("oneDNN Graph JSON", onednn_graph.matches, onednn_graph.read),
    Dialect("aten argument lists in .npz or .safetensors", aten.matches, aten.read, aten.is_foreign),
    Dialect("ONNX models and node-test folders", onnx.matches, onnx.read, has_beside=onnx.has_beside),
    Dialect("HLO and StableHLO text", hlo.matches, hlo.read),
    Dialect("lists of lines", _is_lines, lines.read, lines.is_foreign),
)


def read(
    source: str | Path, limits: Limits = DEFAULT_LIMITS, refused: Callable[[ConvgradError], object] | None = None
) -> Iterator[Case]:
    """Yield the cases of a file, of the files of a folder, or of a problem that is given as text.

    Every case is checked: ``convgrad.run`` can compute its problem, or its ``unsupported`` gives the reason. Names are
    unique, and the same source always gives the same names. Files of a folder that have no case are skipped.

    ``refused`` is called with the FileError of each word, line or file that cannot be read, and with the NoCaseError of
    each file without a case, or the PassedOverError of parts of a file without a case. Then the next word, line or file
    is read. By default the first FileError is raised.

    Raises FileError, which begins with file, line and column if the notation has lines, or NotationError for a typed
    problem.

    >>> [case.name for case in read("BWD_WB f32 NXC mb2ic3ih8oc4oh8kh3ph1")]
    ['mb2ic3ih8oc4oh8kh3ph1_BWD_WB_f32_NXC_XIO', 'mb2ic3ih8oc4oh8kh3ph1_BWD_WB_f32_NXC_XIO_bias']
    """
    readings = _read(source, limits)
    if refused is None:
        passed_over = NoCaseError if os.path.isdir(source) else PassedOverError
        readings = (reading for reading in readings if not isinstance(reading, passed_over))
    return named_apart(_checked(readings, refused))


def is_source(source: str) -> bool:
    """Return whether ``read`` can take a text: it is the name of a file or folder with cases, or looks like a problem.

    >>> is_source("--dir=BWD_D mb1ic3ih8oc4kh3"), is_source("Convolution"), is_source("nowhere.mlir")
    (True, False, False)
    """
    try:
        path = Path(source)
        there, folder = path.exists(), path.is_dir()
    except (OSError, ValueError):  # a text that no file can have as its name
        there = folder = False
    return (folder or _dialect(path) is not None) if there else lines.is_typed(source)


def has_cases(path: Path, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Return whether a file is in a known notation, and has more than arrays."""
    dialect = _dialect(path)
    return dialect is not None and not dialect.is_foreign(path, limits)


def _read(source: str | Path, limits: Limits) -> Iterator[Reading]:
    path = Path(source)
    try:
        folder, there = path.is_dir(), path.exists()
    except (OSError, ValueError):  # a text that no file can have as its name
        folder = there = False
    if not there and isinstance(source, str) and lines.is_typed(source):
        return lines.read_typed(source, limits)
    if folder:
        return _read_folder(path, limits)
    dialect = _dialect(path) if there else None
    if dialect is not None:
        return dialect.readings(path, limits)
    if not there:
        hint = f" Pass a function with --call {source!s:.200}" if re.fullmatch(r"[\w.]+:\w+", str(source)) else ""
        raise FileError(f"{source!s:.200} is neither a file nor a problem line.{hint}")
    raise FileError(f"{source!s:.200}: must be cases in a notation that is known here; {_known()}")


def _read_folder(folder: Path, limits: Limits) -> Iterator[Reading]:
    """Yield the cases of all files below a folder, in the order of file names. Nothing is passed over in silence.

    A file that holds no cases gives a NoCaseError, and a file or folder that cannot be read another FileError. If there
    is no case and no such error, the last value is a FileError.
    """
    has_case = False
    for reading in _beneath(folder, limits):
        has_case = has_case or not isinstance(reading, NoCaseError)
        yield reading
    if not has_case:
        yield FileError(f"{folder}: must hold cases in a known notation; it has none; {_known()}")


def _beneath(folder: Path, limits: Limits, above: tuple[Path, ...] = ()) -> Iterator[Reading]:
    """Yield the cases of a folder's files; ``above`` has the folders that contain it, without links."""
    try:
        here, paths = folder.resolve(), sorted(folder.iterdir())
    except OSError as error:
        yield FileError(f"{folder}: cannot be read: {why(error)}")
        return
    if here in above:
        yield FileError(f"{folder}: must not be a link to a folder that contains it")
        return
    for path in paths:
        try:
            yield from _of_entry(path, limits, (*above, here))
        except (ConvgradError, OSError) as error:
            yield error if isinstance(error, ConvgradError) else FileError(f"{path}: cannot be read: {why(error)}")


def _of_entry(path: Path, limits: Limits, above: tuple[Path, ...]) -> Iterator[Reading]:
    dialect = _dialect(path)
    if dialect is not None and not dialect.is_foreign(path, limits):
        yield from dialect.readings(path, limits)
    elif path.is_dir():
        yield from _beneath(path, limits, above)
    elif not path.is_file():
        yield FileError(f"{path}: must be a file or a folder, or a link to one; it is neither")
    elif not _is_read_with(path):
        yield NoCaseError(f"{path}: must hold cases in a known notation; it has none")


def _is_read_with(path: Path) -> bool:
    """Return whether a file belongs to a case of another file: a tensor of a hipDNN bundle or of an ONNX node test."""
    return any(dialect.has_beside(path) for dialect in DIALECTS)


def _known() -> str:
    return f"notations are {', '.join(dialect.name for dialect in DIALECTS)}"


def _dialect(path: Path) -> Dialect | None:
    return next((dialect for dialect in DIALECTS if dialect.matches(path)), None)


def _checked(readings: Iterator[Reading], refused: Callable[[ConvgradError], object] | None) -> Iterator[Case]:
    """Yield the cases that are valid or unsupported; raise any other error, or pass it to ``refused``."""
    for reading in readings:
        if isinstance(reading, Case):
            error = _mistake(reading)
            if error is None:
                yield reading
                continue
        else:
            error = reading
        if refused is None or isinstance(error, NotationError):  # an error in a typed problem ends the reading
            raise error
        refused(error)


def _mistake(case: Case) -> ConvgradError | None:
    """Return the error of a case with an invalid problem, with the case's place; None for any other case."""
    if case.unsupported:
        return None
    try:
        case.posed()
    except ConvgradError as error:
        kind = NotationError if case.place.startswith(f"{TYPED}:") else FileError
        mistake = kind(f"{case.place}: {error}")
        mistake.__cause__ = error
        return mistake
    return None

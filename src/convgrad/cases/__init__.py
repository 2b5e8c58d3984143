"""Cases to judge: problems, and arrays where they bring some, in the notations in which people keep them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from convgrad.cases import aten, hipdnn, hlo, lines, onednn_graph, onnx
from convgrad.cases.case import Array, Arrays, Case, Found, NoCaseError
from convgrad.cases.naming import named_apart
from convgrad.cases.place import TYPED
from convgrad.errors import ConvgradError, FileError, NotationError
from convgrad.graph.limits import DEFAULT_LIMITS, Limits

__all__ = ["DIALECTS", "Array", "Arrays", "Case", "Dialect", "NoCaseError", "read"]

# Endings of arrays and of what else lies beside cases and is none.
BESIDE = (".npy", ".npz", ".safetensors", ".pt", ".bin", ".pb", ".md", ".py", ".xml", ".png")


@dataclass(frozen=True)
class Dialect:
    """A notation: whether a file, or a folder as a whole, is written in it, and the cases of one that is."""

    name: str
    matches: Callable[[Path], bool]
    read: Callable[[Path, Limits], Iterator[Found]]

    def found(self, path: Path, limits: Limits) -> Iterator[Found]:
        """Give what a file or a folder holds; an error that ends its reading is the last."""
        try:
            yield from self.read(path, limits)
        except ConvgradError as error:
            yield error


def _is_lines(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() not in (".json", *BESIDE)


# The first that matches is meant.
DIALECTS: tuple[Dialect, ...] = (
    Dialect("hipDNN bundles", hipdnn.matches, hipdnn.read),
    Dialect("oneDNN Graph JSON", onednn_graph.matches, onednn_graph.read),
    Dialect("aten argument lists in .npz or .safetensors", aten.matches, aten.read),
    Dialect("ONNX models and node-test folders", onnx.matches, onnx.read),
    Dialect("HLO and StableHLO text", hlo.matches, hlo.read),
    Dialect("lists of lines", _is_lines, lines.read),
)


def read(
    source: str | Path, limits: Limits = DEFAULT_LIMITS, refused: Callable[[ConvgradError], object] | None = None
) -> Iterator[Case]:
    """Give the cases of a file, of every file of a folder that is written in a known notation, or of a typed problem.

    Every case has been checked: it is a problem that ``convgrad.run`` takes, or says that it is ``unsupported``. Names
    are unique, and the same whenever the same source is read. Files of a folder that have no case are passed over.

    ``refused`` is called with the FileError of each word, line or file that cannot be read, and with the NoCaseError
    of each file without a case; the rest is still read. By default the first FileError is raised.

    Raises FileError, which begins with file, line and column where the notation has lines; of a typed problem
    NotationError.

    >>> [case.name for case in read("BWD_WB f32 NXC mb2ic3ih8oc4oh8kh3ph1")]
    ['mb2ic3ih8oc4oh8kh3ph1_BWD_WB_f32_NXC_XIO', 'mb2ic3ih8oc4oh8kh3ph1_BWD_WB_f32_NXC_XIO_bias']
    """
    found = _read(source, limits)
    if refused is None and os.path.isdir(source):
        found = (one for one in found if not isinstance(one, NoCaseError))
    return named_apart(_checked(found, refused))


def _read(source: str | Path, limits: Limits) -> Iterator[Found]:
    path = Path(source)
    try:
        folder, there = path.is_dir(), path.exists()
    except (OSError, ValueError):  # a text that no file can have as its name
        folder = there = False
    if not there and isinstance(source, str) and lines.is_typed(source):
        return lines.read_typed(source, limits)
    dialect = _dialect(path) if there else None
    if dialect is not None:
        return dialect.found(path, limits)
    if folder:
        return _read_folder(path, limits)
    wanted = "must be cases in a notation that is known here" if there else "no such file, and no problem"
    raise FileError(f"{source!s:.200}: {wanted}; {_known()}")


def _read_folder(folder: Path, limits: Limits) -> Iterator[Found]:
    """Give the cases of all files beneath a folder that are in a known notation, by name."""
    there = False
    for one in _beneath(folder, limits):
        there = there or not isinstance(one, NoCaseError)
        yield one
    if not there:
        yield FileError(f"{folder}: must hold cases in a known notation; it has none; {_known()}")


def _beneath(folder: Path, limits: Limits) -> Iterator[Found]:
    for path in sorted(folder.iterdir()):
        dialect = _dialect(path)
        if dialect is not None:
            yield from dialect.found(path, limits)
        elif path.is_dir():
            yield from _beneath(path, limits)


def _known() -> str:
    return f"notations are {', '.join(dialect.name for dialect in DIALECTS)}"


def _dialect(path: Path) -> Dialect | None:
    return next((dialect for dialect in DIALECTS if dialect.matches(path)), None)


def _checked(found: Iterator[Found], refused: Callable[[ConvgradError], object] | None) -> Iterator[Case]:
    """Give the cases that are problems, or say so; raise the error of any other, or hand it over."""
    for one in found:
        if isinstance(one, Case):
            error = _mistake(one)
            if error is None:
                yield one
                continue
        else:
            error = one
        if refused is None or isinstance(error, NotationError):  # what was typed is the caller's own mistake
            raise error
        refused(error)


def _mistake(case: Case) -> ConvgradError | None:
    """Return the error of a case that is no problem, with its place."""
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

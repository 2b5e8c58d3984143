"""Cases to judge: problems, and arrays where they bring some, in the notations in which people keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from convgrad.cases import aten, hipdnn, hlo, lines, onednn_graph, onnx
from convgrad.cases.case import Array, Arrays, Case
from convgrad.cases.naming import named_apart
from convgrad.cases.place import TYPED
from convgrad.errors import ConvgradError, FileError, NotationError
from convgrad.graph.limits import DEFAULT_LIMITS, Limits

__all__ = ["DIALECTS", "Array", "Arrays", "Case", "Dialect", "read"]

# Endings of arrays and of what else lies beside cases and is none.
BESIDE = (".npy", ".npz", ".safetensors", ".pt", ".bin", ".pb", ".md", ".py", ".xml", ".png")


@dataclass(frozen=True)
class Dialect:
    """A notation: whether a file, or a folder as a whole, is written in it, and the cases of one that is."""

    name: str
    matches: Callable[[Path], bool]
    read: Callable[[Path, Limits], Iterator[Case]]


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


def read(source: str | Path, limits: Limits = DEFAULT_LIMITS) -> Iterator[Case]:
    """Give the cases of a file, of every file of a folder that is written in a known notation, or of a typed problem.

    Every case has been checked: it is a problem that ``convgrad.run`` takes, or says that it is ``unsupported``. Names
    are unique, and the same whenever the same source is read.

    Raises FileError, which begins with file, line and column where the notation has lines; of a typed problem
    NotationError.

    >>> [case.name for case in read("BWD_WB f32 NXC mb2ic3ih8oc4oh8kh3ph1")]
    ['mb2ic3ih8oc4oh8kh3ph1_BWD_WB_f32_NXC_XIO', 'mb2ic3ih8oc4oh8kh3ph1_BWD_WB_f32_NXC_XIO_bias']
    """
    return named_apart(map(_checked, _read(source, limits)))


def _read(source: str | Path, limits: Limits) -> Iterator[Case]:
    path = Path(source)
    try:
        folder, there = path.is_dir(), path.exists()
    except (OSError, ValueError):  # a text that no file can have as its name
        folder = there = False
    if not there and isinstance(source, str) and lines.is_typed(source):
        return lines.read_typed(source, limits)
    dialect = _dialect(path)
    if dialect is not None:
        return dialect.read(path, limits)
    if folder:
        return _read_folder(path, limits)
    wanted = "must be cases in a notation that is known here" if there else "no such file, and no problem"
    raise FileError(f"{source}: {wanted}; {_known()}")


def _read_folder(folder: Path, limits: Limits) -> Iterator[Case]:
    """Give the cases of all files beneath a folder that are in a known notation, by name."""
    found = 0
    for path in sorted(folder.iterdir()):
        dialect = _dialect(path)
        if dialect is None and not path.is_dir():
            continue
        for case in dialect.read(path, limits) if dialect else _read_folder(path, limits):
            found += 1
            yield case
    if not found:
        raise FileError(f"{folder}: must hold cases in a known notation; it has none; {_known()}")


def _known() -> str:
    return f"notations are {', '.join(dialect.name for dialect in DIALECTS)}"


def _dialect(path: Path) -> Dialect | None:
    return next((dialect for dialect in DIALECTS if dialect.matches(path)), None)


def _checked(case: Case) -> Case:
    """Return a case that is a problem, or refuse it by its place."""
    if case.unsupported:
        return case
    try:
        case.posed()
    except ConvgradError as error:
        kind = NotationError if case.place.startswith(f"{TYPED}:") else FileError
        raise kind(f"{case.place}: {error}") from error
    return case

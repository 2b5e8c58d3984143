"""The naming scheme for the files of a case's arrays in a folder, which other programs can read and write.

An array has its own file ``CASE.NAME.npy``, ``.pt`` or ``.bin``, or is stored in the shared file ``CASE.npz``,
``.safetensors`` or ``.pt`` under the key NAME. CASE is the case's name. NAME is the operator's name of the operand or
the output. ``CASE.json`` describes raw files (``sidecar.py``). Unsigned integers are read as the bits of bf16, f16
or f8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from convgrad import files
from convgrad.array_types import Array
from convgrad.disk import check_new, why, written
from convgrad.errors import FileError
from convgrad.files import raw
from convgrad.files.raw import Described
from convgrad.formats import of_dtype
from convgrad.graph.limits import DEFAULT_LIMITS, Limits
from convgrad.verify.cases import sidecar
from convgrad.verify.cases.case import Case

ALONE = (".npy", ".pt", ".bin")
TOGETHER = (".npz", ".safetensors", ".pt")
KINDS = (".npy", ".npz", ".safetensors", ".pt", ".bin")
RAW = ".bin"


def result(directory: Path, case: Case, limits: Limits = DEFAULT_LIMITS) -> Array:
    """Return the result of a case, in the type and shape of its file, or raise FileError."""
    tensors = sidecar.tensors_of(case)
    name = list(tensors)[-1]
    arrays = _arrays(directory, case, [name], tensors, limits)
    if name not in arrays:
        raise FileError(f"{directory}: no result is there; looked for {_searched(case, name)}")
    return arrays[name]


def raw_result(path: Path, case: Case, limits: Limits = DEFAULT_LIMITS) -> Array:
    """Return the result of a case in a raw file of any name. ``CASE.json`` in its folder may describe it."""
    tensors = sidecar.tensors_of(case)
    name, about = list(tensors)[-1], path.parent / f"{case.name}.json"
    tensors = sidecar.read(about, tensors, limits) if about.exists() else tensors
    return raw.read(path, tensors[name], limits.memory_bytes)


def operands(directory: Path, case: Case, limits: Limits = DEFAULT_LIMITS) -> tuple[Array, ...] | None:
    """Return the operands of a case in the operator's order, or None if no operand has a file.

    Raise FileError if only some operands have files.
    """
    tensors = sidecar.tensors_of(case)
    names = list(tensors)[:-1]
    arrays = _arrays(directory, case, names, tensors, limits)
    missing = [name for name in names if name not in arrays]
    if not arrays:
        return None
    if missing:
        raise FileError(f"{directory}: all operands of {case.name} must be there, or none; {missing[0]} is missing")
    return tuple(arrays[name] for name in names)


def missing(case: Case) -> str:
    """Return the names of the files in which the first operand of a case was not found, in words."""
    return f"there are none: looked for {_searched(case, next(iter(sidecar.tensors_of(case))))}"


def _searched(case: Case, name: str) -> str:
    alone, together = (", ".join(endings) for endings in (ALONE, TOGETHER))
    return f"{case.name}.{name}{ALONE[0]} ({alone}), and for {name} in {case.name}{TOGETHER[0]} ({together})"


def export(
    directory: Path,
    case: Case,
    operands: Iterable[Array],
    result: Array | None = None,
    kind: str = ".npy",
    force: bool = False,
) -> list[Path]:
    """Write the operands of a case, the result if given, and the sidecar file. Return the paths of all files.

    The sidecar describes the call: operator, attributes, types, shapes. Files .npy and .npz store bf16 and f8 as
    unsigned integers with the same bits.
    """
    if kind not in KINDS:
        raise FileError(f"{directory}: arrays are written as {', '.join(KINDS)}; got {kind}")
    tensors = sidecar.tensors_of(case)
    values = [*operands] + ([] if result is None else [result])
    names = list(tensors)[: len(tensors) - (result is None)]
    arrays = dict(zip(names, values, strict=True))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{directory}: cannot be written: {why(error)}") from error
    about = directory / f"{case.name}.json"
    paths = [about, *_targets(directory, case, names, kind)]
    if kind != RAW:
        files.KINDS[kind].package()
    for path in paths:
        check_new(path, force)
    with written(about, force) as file:
        file.write(sidecar.text_of(case).encode())
    _write(paths[1:], arrays, kind, force)
    return paths


def _targets(directory: Path, case: Case, names: Sequence[str], kind: str) -> list[Path]:
    if kind in (".npz", ".safetensors"):
        return [directory / f"{case.name}{kind}"]
    return [directory / f"{case.name}.{name}{kind}" for name in names]


def _write(paths: Sequence[Path], arrays: Mapping[str, Array], kind: str, force: bool) -> None:
    if kind == RAW:
        for path, array in zip(paths, arrays.values(), strict=True):
            with written(path, force) as file:
                file.write(_little(array).tobytes())
        return
    held = arrays if files.KINDS[kind].extensions else {name: _as_bits(array) for name, array in arrays.items()}
    if len(paths) == 1 and kind not in ALONE:
        files.write_all(str(paths[0]), held, force)
        return
    for path, array in zip(paths, held.values(), strict=True):
        files.write(str(path), array, force)


def _arrays(
    directory: Path, case: Case, names: Sequence[str], tensors: Mapping[str, Described], limits: Limits
) -> dict[str, Array]:
    """Return the arrays with these names that have files. Raise FileError if an array is in two files."""
    places: dict[str, list[Path]] = {name: [] for name in names}
    for ending in TOGETHER:
        path = directory / f"{case.name}{ending}"
        if path.exists():
            for name in set(names) & set(files.keys(path)):
                places[name].append(path)
    for name in names:
        alone = (directory / f"{case.name}.{name}{ending}" for ending in ALONE)
        places[name] += [path for path in alone if path.exists()]
        if len(places[name]) > 1:
            both = ", ".join(path.name for path in places[name])
            raise FileError(f"{directory}: {name} of {case.name} must be there once; got it in {both}")
    if any(path.suffix == RAW for paths in places.values() for path in paths):
        about = directory / f"{case.name}.json"
        tensors = sidecar.read(about, tensors, limits) if about.exists() else tensors
    remaining_bytes = limits.memory_bytes
    arrays = {}
    for name, paths in places.items():
        if paths:
            arrays[name] = _read(paths[0], case, name, tensors[name], remaining_bytes)
            remaining_bytes -= arrays[name].nbytes
    return arrays


def _read(path: Path, case: Case, name: str, described: Described, memory_bytes: int) -> Array:
    if path.suffix == RAW:
        return raw.read(path, described, memory_bytes)
    alone = path.name != f"{case.name}{path.suffix}"
    return files.read(str(path) if alone else f"{path}:{name}", memory_bytes, described.format)


def _as_bits(array: Array) -> Array:
    fmt = of_dtype(array.dtype)
    return array.view(fmt.bits) if fmt is not None and fmt.is_extension else array


def _little(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)

"""The reader of graph JSON, as oneDNN dumps it and benchdnn reads it. Errors are GraphErrors with a JSON path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from convgrad.disk import read_bytes
from convgrad.errors import FileError, GraphError
from convgrad.graph.document import MIN_S64, DocumentRefusal, as_json, read_document, words
from convgrad.graph.graph import SETTINGS, Graph, Header
from convgrad.graph.limits import DEFAULT_LIMITS, Limits
from convgrad.graph.model import LARGEST_ID, LogicalTensor, Op, Verbatim, rows_of
from convgrad.parameters import described
from convgrad.spec.operators import S64_MAX
from convgrad.words import meant, printable

UNKNOWN = MIN_S64
PORTS = ("input_ports", "output_ports")
HEADER = (*SETTINGS, *PORTS, "graph")
HINTED = 100  # the unknown keys of a header that may be misspelled ones; more are not compared
OP = ("id", "name", "kind", "attrs", "inputs", "outputs")
TENSOR = ("id", "dtype", "shape", "stride", "layout_type", "property_type")
ATTRIBUTE = ("type", "value")
BOOKKEEPING = ("matched", "backend", "partition_id", "op_depth")  # attributes that oneDNN adds to ops in a dump


@described
def read(path: str | Path, limits: Limits = DEFAULT_LIMITS) -> Graph:
    """Return the finalized graph of a JSON file, or raise GraphError.

    Args:
        path: The path of the file.
    """
    try:
        data = read_bytes(path, limits.file_bytes + 1)
    except FileError as error:
        raise GraphError(str(error)) from error
    try:
        return from_json(data, limits)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from (error.__cause__ or error)


@described
def from_json(text: str | bytes, limits: Limits = DEFAULT_LIMITS) -> Graph:
    """Return the finalized graph that a JSON text describes, or raise GraphError.

    Args:
        text: The JSON text.

    >>> from_json('{"graph": []}')
    Traceback (most recent call last):
        ...
    convgrad.errors.GraphError: $.graph: must hold at least one op; got []
    """
    document, entries = read_document(text, limits, _is_foreign)
    path, ops = "$", []
    try:
        header, ports, listed = _frame(document)
        if entries is None and (not listed or len(listed) > limits.ops):
            wanted = f"must hold at most {limits.ops} ops" if listed else "must hold at least one op"
            raise DocumentRefusal(f"{wanted}; got {len(listed) or words(listed)}", ".graph")
        for number, entry in enumerate(listed if entries is None else entries):
            path = f"$.graph[{number}]"
            ops.append(_op(entry, path, number))
    except DocumentRefusal as refusal:
        raise GraphError(f"{path}{refusal.path}: {refusal.sentence}") from None
    graph = Graph(ops, outputs=ports["output_ports"], header=header)
    _check_input_ports(graph, ports["input_ports"])
    graph.finalize()
    return graph


def _frame(document: object) -> tuple[Header, dict[str, list[int] | None], list[object]]:
    """Return the header, the ports, and the list of ops, which is empty if an iterator decodes the ops."""
    if not isinstance(document, dict):
        raise DocumentRefusal(f"must be an object with a list of ops under graph; got {words(document)}")
    listed = _field(document, "graph", _list, None)
    others = {key: value for key, value in document.items() if key not in HEADER}
    absent = [known for known in HEADER if known not in document]
    for key in list(others)[:HINTED]:
        if hint := meant(key, absent, minimum=0.75):
            raise DocumentRefusal(f"unknown key {words(key)}{hint}")
    header = _value(
        Header,
        _field(document, "version", _string, Header.version),
        _field(document, "engine_kind", _string, Header.engine_kind),
        _field(document, "fpmath_mode", _string, Header.fpmath_mode),
        _field(document, "fpmath_mode_apply_to_int", _truth, False),
        others,
    )
    ports = {key: _field(document, key, _ids, None) if key in document else None for key in PORTS}
    return header, ports, listed


def _check_input_ports(graph: Graph, ports: list[int] | None) -> None:
    wrong = set(ports or ()) - set(graph.inputs)
    if wrong:
        raise GraphError(f"$.input_ports: must be tensors that ops read and none makes; got {min(wrong)}")


# -- plain values to a graph -----------------------------------------------------------------------------------------


def _op(entry: object, path: str, number: int) -> Op:
    entry = _entry(entry, OP)
    return Op(
        _field(entry, "id", _id, number),
        _field(entry, "kind", _string, None),
        tuple(_field(entry, "inputs", _tensors, ())),
        tuple(_field(entry, "outputs", _tensors, ())),
        _field(entry, "attrs", _foreign_attributes if _is_foreign(entry) else _attributes, {}),
        _field(entry, "name", _string, ""),
        where=path,
    )


def _is_foreign(entry: Mapping[str, object]) -> bool:
    """Return whether an op of a file, before conversion, has a kind outside the convolution family."""
    kind = entry.get("kind")
    return isinstance(kind, str) and not rows_of(kind)


def _tensor(entry: object) -> Any:
    entry = _entry(entry, TENSOR)
    dims = _field(entry, "shape", _integers, [UNKNOWN])
    strides = _field(entry, "stride", _integers, [UNKNOWN])
    return _value(
        _described,
        _field(entry, "id", _id, None),
        _field(entry, "dtype", _string, LogicalTensor.dtype),
        None if dims == [UNKNOWN] else tuple(dims),
        None if UNKNOWN in strides else tuple(strides),
        _field(entry, "layout_type", _string, LogicalTensor.layout_type),
        _field(entry, "property_type", _string, LogicalTensor.property_type),
    )


@lru_cache(maxsize=4096)
def _described(*fields: Any) -> LogicalTensor:
    """Return a tensor. Equal descriptions in several ops give the same object, because it is cached."""
    return LogicalTensor(*fields)


def _attribute(entry: object) -> Any:
    entry = _entry(entry, ATTRIBUTE)
    kind = _field(entry, "type", _string, None)
    if kind not in ATTRIBUTE_TYPES:
        raise DocumentRefusal(f"must be one of {', '.join(ATTRIBUTE_TYPES)}; got {words(kind)}", ".type")
    return _field(entry, "value", ATTRIBUTE_TYPES[kind], None)


def _foreign_attribute(entry: object) -> Any:
    """Return an attribute of an op outside the convolution family, as Verbatim if its value does not imply its type."""
    try:
        value = _attribute(entry)
    except DocumentRefusal:
        return Verbatim(as_json(entry))
    return Verbatim(as_json(entry)) if value == [] and _dict(entry)["type"] == "f32[]" else value


def _field(entry: Mapping[str, object], key: str, convert: Callable[[Any], object], default: object) -> Any:
    """Return a converted field, or its default; a field is required if its default is None."""
    if key not in entry:
        if default is None:
            raise DocumentRefusal(f"must have {key}; it has {printable(', '.join(entry)) or 'no keys'}")
        return default
    try:
        return convert(entry[key])
    except DocumentRefusal as refusal:
        raise refusal.within(f".{printable(key)}") from None


def _value(kind: Callable[..., object], *fields: object) -> Any:
    """Return ``kind(*fields)``, which checks its fields, but raise Refusal instead of GraphError."""
    try:
        return kind(*fields)
    except GraphError as error:
        raise DocumentRefusal(str(error)) from None


# -- types -----------------------------------------------------------------------------------------------------------


def _wrong(wanted: str, value: object) -> DocumentRefusal:
    return DocumentRefusal(f"must be {wanted}; got {words(value)}")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise _wrong("a string", value)
    return value


def _boolean(value: object) -> bool:
    if type(value) not in (int, bool) or value not in (0, 1):
        raise _wrong("0 or 1, or false or true", value)
    return bool(value)


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise _wrong('"true" or "false"', value)
    return value == "true"


def _s64(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not UNKNOWN <= value <= S64_MAX:
        raise _wrong("an integer of 64 bits", value)
    return value


def _id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_ID:
        raise _wrong("a non-negative integer of 64 bits", value)
    return value


def _f32(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong("a number", value)
    return float(value)


def _dict(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _wrong("an object", value)
    return value


def _entry(value: object, keys: Sequence[str]) -> dict[str, object]:
    """Return an object without other keys. An unknown key could change the meaning of an op, so it is not ignored."""
    entry = _dict(value)
    for key in entry:
        if key not in keys:
            raise DocumentRefusal(f"unknown key {words(key)}{meant(key, keys)}. The keys are {', '.join(keys)}")
    return entry


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong("a list", value)
    return value


def _list_of(convert: Callable[[Any], object]) -> Callable[[Any], list[Any]]:
    def converted(value: object) -> list[Any]:
        values: list[object] = []
        try:
            values.extend(map(convert, _list(value)))
        except DocumentRefusal as refusal:
            raise (refusal.within(f"[{len(values)}]") if isinstance(value, list) else refusal) from None
        return values

    return converted


_integers = _list_of(_s64)
_ids = _list_of(_id)
_tensors = _list_of(_tensor)


def _attributes_of(convert: Callable[[Any], object]) -> Callable[[Any], dict[str, object]]:
    def converted(value: object) -> dict[str, object]:
        entries = _dict(value)
        return {name: _field(entries, name, convert, None) for name in entries if name not in BOOKKEEPING}

    return converted


_attributes = _attributes_of(_attribute)
_foreign_attributes = _attributes_of(_foreign_attribute)

ATTRIBUTE_TYPES: Mapping[str, Callable[[Any], Any]] = {
    "bool": _boolean,
    "s64": _s64,
    "s64[]": _integers,
    "f32": _f32,
    "f32[]": _list_of(_f32),
    "string": _string,
}

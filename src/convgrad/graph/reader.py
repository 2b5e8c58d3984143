"""A graph from JSON as oneDNN dumps it and benchdnn reads it. Whatever is wrong is a GraphError with its JSON path."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from convgrad.disk import read_bytes
from convgrad.errors import FileError, GraphError
from convgrad.graph.graph import Graph, Header
from convgrad.graph.limits import DEFAULT_LIMITS, Limits
from convgrad.graph.model import LARGEST_ID, LogicalTensor, Op
from convgrad.spec.check import S64_MAX
from convgrad.words import printable

UNKNOWN = -(2**63)
BOOKKEEPING = ("matched", "backend", "partition_id", "op_depth")  # attributes of a dump, not of an operator

_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]')  # possessive: a string keeps no way back
_LONGEST_NUMBER = 400


class _Object(list[tuple[str, Any]]):
    """A JSON object as it stands: pairs, which may repeat a key."""


class _NotJson(str):
    """A number that JSON or a graph has no room for: its text, or the start of it."""


def read(path: str | Path, limits: Limits = DEFAULT_LIMITS) -> Graph:
    """Return the finalized graph of a JSON file, or raise GraphError."""
    try:
        data = read_bytes(path, limits.file_bytes + 1)
    except FileError as error:
        raise GraphError(str(error)) from error
    try:
        return from_json(data, limits)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from (error.__cause__ or error)


def from_json(text: str | bytes, limits: Limits = DEFAULT_LIMITS) -> Graph:
    """Return the finalized graph that a JSON text describes, or raise GraphError.

    >>> from_json('{"graph": []}')
    Traceback (most recent call last):
        ...
    convgrad.errors.GraphError: $.graph: must hold at least one op; got []
    """
    document = _document(text, limits)
    if not isinstance(document, dict):
        raise GraphError(f"$: must be an object with a list of ops under graph; got {_words(document)}")
    with _at("$"):
        header = Header(
            _field(document, "version", "$", _string, Header.version),
            _field(document, "engine_kind", "$", _string, Header.engine_kind),
            _field(document, "fpmath_mode", "$", _string, Header.fpmath_mode),
            _field(document, "fpmath_mode_apply_to_int", "$", _truth, False),
        )
    found = _field(document, "graph", "$", _list, None)
    if not found or len(found) > limits.ops:
        wanted = f"must hold at most {limits.ops} ops" if found else "must hold at least one op"
        raise GraphError(f"$.graph: {wanted}; got {len(found) if found else _words(found)}")
    ops = [_op(entry, f"$.graph[{index}]", index) for index, entry in enumerate(found)]
    graph = Graph(ops, outputs=_field(document, "output_ports", "$", _ids, None), header=header)
    _check_input_ports(graph, _field(document, "input_ports", "$", _ids, None))
    graph.finalize()
    return graph


def _check_input_ports(graph: Graph, ports: list[int] | None) -> None:
    wrong = set(ports or ()) - set(graph.inputs)
    if wrong:
        raise GraphError(f"$.input_ports: must be tensors that ops read and none makes; got {min(wrong)}")


# -- text to plain values --------------------------------------------------------------------------------------------


def _document(text: str | bytes, limits: Limits) -> Any:
    if len(text) > limits.file_bytes:
        raise GraphError(f"$: the text must be at most {limits.file_bytes} bytes (file_bytes); it is longer")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise GraphError(f"$: must be UTF-8; {error}") from error
    _check_nesting(text, limits.nesting)
    try:
        document = json.loads(
            text, object_pairs_hook=_Object, parse_constant=_NotJson, parse_int=_integer, parse_float=_float
        )
        return _plain(document, "$")
    except json.JSONDecodeError as error:
        raise GraphError(f"$: must be JSON; {error}") from error
    except RecursionError as error:
        raise GraphError("$: must nest no deeper than Python's own recursion limit") from error


def _check_nesting(text: str, limit: int) -> None:
    depth = 0
    for token in _TOKENS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group()[0], 0)
        if depth > limit:
            raise GraphError(f"$: must nest at most {limit} deep (nesting); it is deeper at character {token.start()}")


def _integer(text: str) -> int | _NotJson:
    return int(text) if len(text) <= len(str(UNKNOWN)) else _NotJson(text[:_LONGEST_NUMBER])


def _float(text: str) -> float | _NotJson:
    number = float(text) if len(text) <= _LONGEST_NUMBER else math.inf
    return number if math.isfinite(number) else _NotJson(text[:_LONGEST_NUMBER])


def _plain(value: Any, path: str) -> Any:
    """Return the document with objects as dicts, or raise where a key repeats or a number cannot be one."""
    if isinstance(value, _Object):
        found: dict[str, Any] = {}
        for key, item in value:
            if key in found:
                raise GraphError(f"{path}: keys must differ; {_words(key)} stands twice")
            found[key] = _plain(item, f"{path}.{printable(key)}")
        return found
    if isinstance(value, list):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, _NotJson):
        raise GraphError(f"{path}: must be a finite number of at most 64 bits; got {value:.40}")
    return value


# -- plain values to a graph -----------------------------------------------------------------------------------------


def _op(entry: object, path: str, index: int) -> Op:
    entry = _dict(entry, path)
    attributes = _field(entry, "attrs", path, _dict, {})
    with _at(path):
        return Op(
            _field(entry, "id", path, _id, index),
            _field(entry, "kind", path, _string, None),
            _tensors(entry, "inputs", path),
            _tensors(entry, "outputs", path),
            {
                name: _attribute(attribute, f"{path}.attrs.{printable(name)}")
                for name, attribute in attributes.items()
                if name not in BOOKKEEPING
            },
            _field(entry, "name", path, _string, ""),
            where=path,
        )


def _tensors(entry: Mapping[str, Any], key: str, path: str) -> tuple[LogicalTensor, ...]:
    found = _field(entry, key, path, _list, [])
    return tuple(_tensor(item, f"{path}.{key}[{index}]") for index, item in enumerate(found))


def _tensor(entry: object, path: str) -> LogicalTensor:
    entry = _dict(entry, path)
    dims = _field(entry, "shape", path, _integers, [UNKNOWN])
    strides = _field(entry, "stride", path, _integers, [UNKNOWN])
    with _at(path):
        return LogicalTensor(
            _field(entry, "id", path, _id, None),
            _field(entry, "dtype", path, _string, LogicalTensor.dtype),
            None if dims == [UNKNOWN] else tuple(dims),
            None if UNKNOWN in strides else tuple(strides),
            _field(entry, "layout_type", path, _string, LogicalTensor.layout_type),
            _field(entry, "property_type", path, _string, LogicalTensor.property_type),
        )


def _attribute(entry: object, path: str) -> Any:
    entry = _dict(entry, path)
    kind = _field(entry, "type", path, _string, None)
    if kind not in ATTRIBUTE_TYPES:
        raise GraphError(f"{path}.type: must be one of {', '.join(ATTRIBUTE_TYPES)}; got {_words(kind)}")
    return _field(entry, "value", path, ATTRIBUTE_TYPES[kind], None)


def _field(entry: Mapping[str, Any], key: str, path: str, convert: Callable[[Any, str], Any], default: Any) -> Any:
    """Return a field converted, or its default; one whose default is None is required, but for the ports."""
    if key not in entry:
        if default is None and not key.endswith("_ports"):
            raise GraphError(f"{path}: must have {key}; it has {printable(', '.join(entry)) or 'no keys'}")
        return default
    return convert(entry[key], f"{path}.{key}")


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Put the path before what the values themselves refuse."""
    try:
        yield
    except GraphError as error:
        raise error if str(error).startswith("$") else GraphError(f"{path}: {error}") from error.__cause__


# -- types -----------------------------------------------------------------------------------------------------------


def _words(value: object) -> str:
    return f"{json.dumps(value):.60}"


def _wrong(path: str, wanted: str, value: object) -> GraphError:
    return GraphError(f"{path}: must be {wanted}; got {_words(value)}")


def _string(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    return value


def _boolean(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(path, "true or false", value)
    return value


def _truth(value: object, path: str) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise _wrong(path, '"true" or "false"', value)
    return value == "true"


def _s64(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not UNKNOWN <= value <= S64_MAX:
        raise _wrong(path, "an integer of 64 bits", value)
    return value


def _id(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_ID:
        raise _wrong(path, "a non-negative integer of 64 bits", value)
    return value


def _f32(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(path, "a number", value)
    return float(value)


def _dict(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(path, "an object", value)
    return value


def _list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(path, "a list", value)
    return value


def _list_of(convert: Callable[[Any, str], Any]) -> Callable[[Any, str], list[Any]]:
    def converted(value: object, path: str) -> list[Any]:
        return [convert(item, f"{path}[{index}]") for index, item in enumerate(_list(value, path))]

    return converted


_integers = _list_of(_s64)
_ids = _list_of(_id)

ATTRIBUTE_TYPES: Mapping[str, Callable[[Any, str], Any]] = {
    "bool": _boolean,
    "s64": _s64,
    "s64[]": _integers,
    "f32": _f32,
    "f32[]": _list_of(_f32),
    "string": _string,
}

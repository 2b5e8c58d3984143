"""Mutated graph files: each is read or refused with a GraphError, quickly; what is read is written, cut and run."""

from __future__ import annotations

import copy
import json
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

from convgrad.errors import GraphError
from convgrad.formats import FORMATS
from convgrad.graph import Graph, Limits, LogicalTensor, from_json, to_json
from convgrad.graph.model import INTEGER_DTYPES, operator_of
from tests.support.built_in_graphs import BUILT_IN, HEADER, ONE, UNKNOWN, Json, op_of, tensor_of, typed
from tests.support.helpers import within
from tests.support.places import GRAPHS

MUTANTS = 1000
SECONDS = 1.0  # of processor time, for one text
GROWTH = 300_000  # of the process's peak memory, in KiB
ELEMENTS = 10**5  # of the inputs of a graph that is worth running here
RUN_LIMITS = Limits(memory_bytes=1 << 26)
SHOWN = 3000  # characters of a text that fails


# -- documents to start from -------------------------------------------------------------------------------------------

LARGEST_FILE = 20_000  # characters: mutants of larger ones only take longer


def base_documents() -> list[str]:
    """Return what is mutated, as text: documents of one's own first, then the graphs beside this file."""
    files = (json.loads(path.read_text()) for path in sorted(GRAPHS.glob("*.json")))
    texts = [json.dumps(HEADER | {"graph": ops}) for ops in BUILT_IN] + [json.dumps(document) for document in files]
    return [text for text in texts if len(text) <= LARGEST_FILE]


# -- mutations ---------------------------------------------------------------------------------------------------------

NEST: Any = 0
for _ in range(40):
    NEST = [NEST]

NASTY: list[Any] = [
    *(None, True, False, "", "x", "\x1b[31m\ud800", "é", "-1", -1, 0, 1, 2, 2.0, 0.5, -0.0, 1e308, [], {}, [[]], [0]),
    *(2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30),
    *([-1], [1, 1], [0, 0, 0], [2**62] * 3, [2**32, 2**32], [1] * 64, [1] * 65, [1] * 3000, [UNKNOWN], [UNKNOWN, 1]),
    *(float("nan"), float("inf"), float("-inf"), NEST, "x" * 5000, {"type": "s64", "value": 1}, {"id": 0}),
]
KINDS = [
    *("Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights", "ConvTranspose", "ReLU", "BiasAdd", ""),
    *("ConvTransposeBackwardData", "ConvTransposeBackwardWeights", "BiasAddBackward", "BiasAddBackprop-1", "BiasAdd-1"),
    *("ConvolutionBackpropFilters-1", "ConvolutionBackpropData", "ConvolutionBackpropWeights-1", "Convolution-1"),
]
NAMES = {
    "kind": KINDS,
    "dtype": ["f32", "bf16", "f16", "undef", "s32", "s64", "s8", "boolean", "f64"],
    "type": ["bool", "s64", "s64[]", "f32", "f32[]", "string"],
    "layout_type": ["undef", "any", "strided", "opaque"],
    "property_type": ["undef", "variable", "constant", "host_scalar"],
}
KEYS = [
    *("strides", "dilations", "pads_begin", "pads_end", "auto_pad", "groups", "data_format", "weights_format"),
    *("filter_format", "weights_shape", "filter_shape", "dst_shape", "output_shape", "output_padding", "matched"),
    *("id", "kind", "attrs", "inputs", "outputs", "shape", "stride", "dtype", "type", "value", "name", "foo", ""),
]


def _choose(rng: np.random.Generator, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container with every key in it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)


def _replace(rng: np.random.Generator, document: Json) -> None:
    container, key = _choose(rng, list(_places(document)))
    container[key] = copy.deepcopy(_choose(rng, NASTY))  # a later mutation may change it


def _rename(rng: np.random.Generator, document: Json) -> None:
    container, key = _choose(rng, [place for place in _places(document) if isinstance(place[0], dict)])
    container[_choose(rng, KEYS)] = container.pop(key)


def _delete(rng: np.random.Generator, document: Json) -> None:
    container, key = _choose(rng, list(_places(document)))
    del container[key]


def _duplicate(rng: np.random.Generator, document: Json) -> None:
    """Copy a value to another key of its container: an op, a tensor, an extent or an attribute comes twice."""
    container, key = _choose(rng, list(_places(document)))
    again = json.loads(json.dumps(container[key]))
    if isinstance(container, list):
        container.insert(int(rng.integers(len(container) + 1)), again)
    else:
        container[_choose(rng, KEYS)] = again


def _nudge(rng: np.random.Generator, document: Json) -> None:
    """Change an integer by a little: extents, strides, ids, attributes; or set it to another of the document."""
    numbers = [(c, k) for c, k in _places(document) if type(c[k]) is int]
    if numbers:
        container, key = _choose(rng, numbers)
        other, place = _choose(rng, numbers)
        container[key] = other[place] if rng.random() < 0.5 else container[key] + int(rng.integers(-2, 3))


def _name(rng: np.random.Generator, document: Json) -> None:
    """Change a kind, a type or a layout to another one that exists."""
    named = [(c, k) for c, k in _places(document) if isinstance(c, dict) and k in NAMES]
    if named:
        container, key = _choose(rng, named)
        container[key] = _choose(rng, NAMES[key])


def _swap(rng: np.random.Generator, document: Json) -> None:
    """Exchange two values of like place: tensors, ops, attributes, or inputs and outputs."""
    places = list(_places(document))
    container, key = _choose(rng, places)
    other, place = _choose(rng, [p for p in places if p[1] == key or p[0] is container])
    if not _holds(container[key], other) and not _holds(other[place], container):
        container[key], other[place] = other[place], container[key]


def _holds(value: Any, container: Any) -> bool:
    return value is container or any(c[k] is container for c, k in _places(value))


def _connect(rng: np.random.Generator, document: Json) -> None:
    """Give a tensor, everywhere or in one place, the id or the whole description of another."""
    tensors = [(c, k) for c, k in _places(document) if isinstance(c[k], dict) and "id" in c[k] and "kind" not in c[k]]
    if tensors:
        (container, key), (other, place) = _choose(rng, tensors), _choose(rng, tensors)
        container[key] = dict(other[place]) if rng.random() < 0.5 else container[key] | {"id": other[place]["id"]}


def _add_attribute(rng: np.random.Generator, document: Json) -> None:
    lists = [c[k] for c, k in _places(document) if k == "attrs" and isinstance(c[k], dict)]
    if lists:
        value = _choose(rng, [1, 2, [1], [0], [1, 1], [0, 0], [3, 3, 4], [5], "none", "SAME_LOWER", "valid", 1.5, True])
        _choose(rng, lists)[_choose(rng, KEYS)] = next(iter(typed(value=value).values()))


def _unknown(rng: np.random.Generator, document: Json) -> None:
    """Make every description of one tensor's extents, or of one extent, unknown."""
    tensors = [c for c, k in _places(document) if k == "shape" and isinstance(c[k], list)]
    if tensors:
        number = _choose(rng, tensors).get("id")
        whole, at = rng.random() < 0.5, int(rng.integers(3))
        for tensor in (t for t in tensors if t.get("id") == number):
            if whole:
                tensor["shape"] = [UNKNOWN]
            elif at < len(tensor["shape"]):
                tensor["shape"][at] = -1


MUTATIONS: list[Callable[[np.random.Generator, Json], None]] = [
    *(_replace, _rename, _delete, _duplicate, _nudge, _nudge, _name, _name, _swap, _connect, _add_attribute),
    *(_add_attribute, _unknown, _unknown),
]


def _damaged(rng: np.random.Generator, text: str) -> str:
    """Return a text with characters or slices changed."""
    start, length = int(rng.integers(len(text))), int(rng.integers(1, 30)) if rng.random() < 0.7 else len(text) // 3
    piece = text[start : start + length]
    at = int(rng.integers(len(text)))
    return _choose(
        rng,
        [
            text[:start],
            text[:start] + text[start + length :],
            text[:at] + piece + text[at:],
            text[:start] + piece[::-1] + text[start + length :],
            text[:at] + chr(int(rng.integers(0x110000))) + text[at + 1 :],
            text[:at] + chr(int(rng.integers(32, 127))) + text[at + 1 :],
            text[:at] + chr(int(rng.integers(32, 127))) + text[at:],
            *(text[:at] + digit + text[at + (text[at].isdigit()) :] for digit in "0129"),
        ],
    )


def mutant(rng: np.random.Generator, bases: list[str]) -> str:
    """Return a mutated text."""
    built_in = bases[: len(BUILT_IN)]
    text = _choose(rng, built_in if rng.random() < 0.6 else bases)
    if rng.random() < 0.25:
        for _ in range(int(rng.integers(1, 3))):
            text = _damaged(rng, text) or "{"
        return text
    document = json.loads(text)
    for _ in range(int(rng.geometric(0.6))):
        if list(_places(document)):
            _choose(rng, MUTATIONS)(rng, document)
    text = json.dumps(document, ensure_ascii=bool(rng.random() < 0.5))
    return text.replace("1e+308", "1e999") if rng.random() < 0.5 else text


# -- what is asserted of each ------------------------------------------------------------------------------------------


def made_up(graph: Graph, rng: np.random.Generator) -> dict[int | str, object] | None:
    """Return arrays for the graph's inputs and what ops outside the family make; None where they would be large."""
    outside = [t.id for op in graph.ops if op.id in graph.inference.reasons for t in op.outputs]
    described = [graph.tensors[number] for number in (*graph.inputs, *outside)]
    shapes = {tensor.id: _shape(tensor, rng) for tensor in described}
    if sum(map(prod, shapes.values())) > ELEMENTS:
        return None
    wanted = {}  # values of shape inputs
    for op in graph.ops:
        row = operator_of(op)
        for port, tensor in zip(row.operands if row else (), op.inputs, strict=False):
            if port.is_shape:
                wanted[tensor.id] = graph.tensors[op.outputs[0].id].shape or (3, 2, 4)
    arrays: dict[int | str, object] = {}
    for tensor in described:
        if tensor.dtype in INTEGER_DTYPES or (tensor.id in wanted and tensor.dtype == "undef"):
            arrays[tensor.id] = np.array(wanted.get(tensor.id, (1, 2)), np.int32)
        elif tensor.dtype == "undef" or tensor.format is not None:
            fmt = tensor.format or FORMATS["f32"]
            arrays[tensor.id] = rng.integers(-2, 3, shapes[tensor.id]).astype(fmt.dtype)
    return arrays


def _shape(tensor: LogicalTensor, rng: np.random.Generator) -> tuple[int, ...]:
    dims = (1, 5, None) if tensor.dims is None else tensor.dims
    return tuple(int(rng.integers(1, 5)) if extent is None else extent for extent in dims)


def check(text: str, rng: np.random.Generator) -> str:
    """Return what became of a text, or raise whatever should not have come."""
    try:
        graph = from_json(text)
    except GraphError as error:
        message = str(error)
        assert message.startswith("$"), message
        assert message.isprintable(), ascii(message)
        assert len(message) < 2000, message[:100]
        return "refused"
    written = to_json(graph)
    assert written.isascii()
    assert "\\" not in written
    assert to_json(from_json(written)) == written
    assert sum(len(partition.ops) for partition in graph.partitions()) == len(graph.ops)
    arrays = made_up(graph, rng)
    if arrays is None:
        return "read"
    try:
        outcome = graph.run(arrays, limits=RUN_LIMITS)
    except GraphError:
        return "refused to run"
    assert len(outcome.skipped) <= len(graph.ops)
    return "ran" if outcome.results else "ran nothing"


def fuzz(seed: int, count: int) -> Counter[str]:
    """Check mutants; raise with the seed and the text at the first that fails."""
    bases = base_documents()
    counts: Counter[str] = Counter()
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        text = mutant(rng, bases)
        try:
            with within(SECONDS):
                counts[check(text, rng)] += 1
        except Exception as error:
            shown = ascii(text if len(text) <= SHOWN else f"{text[:SHOWN]} ... {len(text)} characters")
            what = f"{type(error).__name__} {str(error)!a}"
            raise AssertionError(f"seed [{seed}, {number}]: {what}: {shown}") from error
    return counts


def test_documents_as_they_are_run() -> None:
    outcomes = Counter(check(text, np.random.default_rng(0)) for text in base_documents())
    assert not outcomes["refused"]
    assert outcomes["ran"] > len(BUILT_IN) // 2, outcomes


# Strides of the output that no memory has, with an extent of 0 or 1 where they cost no memory.
@pytest.mark.parametrize("extents", [[1, 5, 3], [0, 5, 3], [2, 5, 3]])
@pytest.mark.parametrize("stride", [[2**62, 12, 1], [2**63 - 1] * 3, [2**40, 2**40, 2**40], [0, 0, 0]])
def test_strides_that_no_memory_has_are_refused_or_harmless(extents: list[int], stride: list[int]) -> None:
    output = tensor_of(2, [extents[0], 3, 4], stride=stride)
    op = op_of(0, "Convolution", [tensor_of(0, extents), tensor_of(1, [3, 3, 4])], output, **ONE)
    check(json.dumps({"graph": [op]}), np.random.default_rng(0))


@pytest.mark.every(3)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(100 + n, marks=pytest.mark.long) for n in range(100))])
def test_a_mutated_graph_is_read_or_refused(seed: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    counts = fuzz(seed, MUTANTS)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < GROWTH, f"{growth} KiB more"
    assert counts.total() == MUTANTS
    assert counts["refused"] >= 0.3 * MUTANTS, counts
    assert MUTANTS - counts["refused"] >= 0.05 * MUTANTS, counts
    assert counts["ran"] >= 0.02 * MUTANTS, counts

"""Identifiers use the field's words in every room."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.package.syntax import nodes
from tests.support.places import SOURCES

ALLOWED = {  # for a folder and the folders in it: words of another library or format, and of our public interface
    "dask": {"chunks"},
    "scale": {"chunks"},
    "verify/cases": {"window", "most"},
    "jax": {"window"},
    "torch": {"most", "gather"},
    "verify": {"blind"},
    "cli": {"blind", "role"},
    "engines/llvm/elementwise": {"strips"},
}
REFUSED = {
    "ahead": "prefetch",
    "chunks": "cache blocks",
    "least": "minimum",
    "most": "maximum",
    "slab": "output block, sub-problem",
    "slabs": "output blocks, sub-problems",
    "variant": "algorithm",
    "variants": "algorithms",
    "strips": "direct depthwise kernel",
    "window": "grouped stencil",
    "windows": "grouped stencil",
    "planes": "spatial stencil",
    "finish": "store, epilogue",
    "finished": "stored",
    "box": "region",
    "boxes": "regions",
    "stretch": "segment",
    "runs": "segments",
    "told": "flag",
    "ask": "prefetch",
    "asks": "prefetches",
    "rest": "remainder",
    "joined": "combined",
    "climb": "push, combine",
    "carry": "push, combine",
    "gather": "output-stationary loop nest; split-K reduction",
    "exchanged": "transposed GEMM",
    "hidden": "opaque",
    "lies": "contiguous axis; strides",
    "neither": "STRIDED",
    "rates": "cost-model constants",
    "roles": "passes",
    "role": "pass",
    "strategies": "candidates",
    "oracle": "exact result",
    "golden": "exact result",
    "blind": "undetectable",
}


EMPTY = {"one", "found", "given", "each", "met", "made", "seen"}  # words without a noun: a name needs the thing's noun
PUBLIC = {  # names that users pass or read
    "graph/graph.py": {"given"},
    "verify/probe/__init__.py": {"seen"},
    "verify/verdict.py": {"found"},
}

ROOMS = sorted({path.parent.relative_to(SOURCES) for path in SOURCES.rglob("*.py")})


def allowed(room: Path) -> set[str]:
    return set().union(*(ALLOWED.get(folder.as_posix(), set()) for folder in (room, *room.parents)))


DEFINED = {"Name": "id", "Attribute": "attr", "arg": "arg", "FunctionDef": "name", "AsyncFunctionDef": "name"}
DEFINED |= {"ClassDef": "name", "ExceptHandler": "name", "MatchAs": "name", "MatchStar": "name"}
DEFINED |= {"MatchMapping": "rest", "alias": "asname"}
USED = {"Name": "id", "Attribute": "attr", "arg": "arg", "keyword": "arg", "FunctionDef": "name", "ClassDef": "name"}


STORE = ast.Store()  # where nodes have no context


@cache
def names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return names that a module defines, passes or reads, with names of what it imports; and those it defines."""
    identifiers, defined = set[str | None](), set[str | None]()
    for node in nodes(ast.parse(text)):
        kind = type(node).__name__
        if kind in USED:
            identifiers.add(getattr(node, USED[kind]))
        if isinstance(node, ast.alias):
            identifiers.update(node.name.split("."))
        if kind in DEFINED and isinstance(getattr(node, "ctx", STORE), ast.Store):
            defined.add(getattr(node, DEFINED[kind]))
    return frozenset(filter(None, identifiers)), frozenset(filter(None, defined))


def refused(text: str) -> set[str]:
    """Refused words among the words that identifiers are made of."""
    return {word for name in names(text)[0] for word in name.lower().split("_")} & REFUSED.keys()


@pytest.mark.parametrize("room", ROOMS, ids=Path.as_posix)
def test_words_of_identifiers(room: Path) -> None:
    each = {path.name: refused(path.read_text()) - allowed(room) for path in (SOURCES / room).glob("*.py")}
    found = {name: words for name, words in each.items() if words}
    assert found == {}, {word: REFUSED[word] for words in found.values() for word in words}


@pytest.mark.parametrize("text", ["def climb(): ...", "self.exchanged", "f(role=1)", "from plan import rates"])
def test_the_check_bites(text: str) -> None:
    assert len(refused(text)) == 1


def test_a_name_of_a_class_has_one_meaning() -> None:
    """The errors of convgrad.torch are those of convgrad that are PyTorch's, too, so they have the same names."""
    names: dict[str, list[str]] = {}
    for path in SOURCES.rglob("*.py"):
        if path != SOURCES / "torch" / "errors.py":
            for name in re.findall(r"^ *class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
                names.setdefault(name, []).append(str(path.relative_to(SOURCES)))
    assert {name: paths for name, paths in names.items() if len(paths) > 1} == {}


def empty_names(text: str) -> set[str]:
    """The words that a module defines as the whole name of something; it may use those of others."""
    return {name for name in names(text)[1] if name.lower().strip("_") in EMPTY}


@pytest.mark.parametrize("room", ROOMS, ids=Path.as_posix)
def test_a_name_has_a_noun(room: Path) -> None:
    """A reader learns from the name what the value is: an operand, a candidate, the costs."""
    found = {}
    for path in (SOURCES / room).glob("*.py"):
        place = path.relative_to(SOURCES)
        found[place.as_posix()] = empty_names(path.read_text()) - PUBLIC.get(place.as_posix(), set())
    assert {place: words for place, words in found.items() if words} == {}


def test_public_names_without_a_noun_exist() -> None:
    for name, words in PUBLIC.items():
        assert empty_names((SOURCES / name).read_text(encoding="utf-8")) >= words


@pytest.mark.parametrize(
    "text",
    [
        "one = 1",
        "_found: int",
        "self.met = 1",
        "def f(given): ...",
        "def f(*, each=1): ...",
        "def f(*seen): ...",
        "lambda one: 1",
        "def _made(): ...",
        "async def found(): ...",
        "class Seen: ...",
        "for one in x: ...",
        "[1 for each in x]",
        "(found := 1)",
        "with f() as one: ...",
        "import x as made",
        "try: ...\nexcept E as found: ...",
        "match x:\n case [*one]: ...",
        "match x:\n case {**given}: ...",
        "match x:\n case given: ...",
        "a, (met, b) = x",
        "for a, *each in x: ...",
    ],
)
def test_the_check_of_nouns_bites(text: str) -> None:
    assert len(empty_names(text)) == 1


@pytest.mark.parametrize("text", ["f(given=1)", "x.found", "print(one)", "last_given = 1", "import one"])
def test_the_check_of_nouns_accepts(text: str) -> None:
    assert empty_names(text) == set()


def test_long_calls_of_emitted_functions_name_their_values() -> None:
    """Two values that change places are well-typed IR, so a call has at most six without a name."""
    for path in (SOURCES / "engines" / "llvm").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr="call"), args=[_, *values]):
                    assert len(values) <= 6, f"{path}:{node.lineno}"

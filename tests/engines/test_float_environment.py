"""Gradients keep their bits, and the control register its word, whatever flushing, rounding and traps that asks for."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.engines.float_environment import (
    DEFAULT,
    DENORMAL,
    DENORMALS_ARE_ZERO,
    DIVISION,
    DOWN,
    FLUSH,
    INVALID,
    OVERFLOW,
    TO_ZERO,
    UNDERFLOW,
    UP,
    gradients,
)
from tests.support.children import run_program
from tests.support.engine_helpers import HOST
from tests.support.tiers import tiers

TRAPS = INVALID | DENORMAL | DIVISION | OVERFLOW | UNDERFLOW  # Python itself does not live with a trapped inexact
EVERYTHING = (DEFAULT | FLUSH | DENORMALS_ARE_ZERO | TO_ZERO) & ~TRAPS
WORDS = {
    "flush to zero": DEFAULT | FLUSH,
    "denormals are zero": DEFAULT | DENORMALS_ARE_ZERO,
    "both": DEFAULT | FLUSH | DENORMALS_ARE_ZERO,
    "down": DEFAULT | DOWN,
    "up": DEFAULT | UP,
    "to zero": DEFAULT | TO_ZERO,
    "traps": DEFAULT & ~TRAPS,
    "everything": EVERYTHING,
}
SOME = ("up", "everything")
FEW, ALL = 1, 3  # types of operands of a layer

pytestmark = pytest.mark.skipif("avx2" not in HOST, reason="MXCSR is of x86")


@functools.cache
def child(isa: str, types: int, *words: int) -> dict[str, Any]:
    """Make all calls under these words in a process of its own; fail with the call it died in."""
    *_, last = run_program("tests.engines.float_environment", types, *words, CONVGRAD_MAX_ISA=isa)
    told: dict[str, Any] = json.loads(last)
    return told


def default(isa: str, types: int, names: Iterable[str] = SOME) -> dict[str, Any]:
    """Return what one process did under the default word, then under others."""
    return child(isa, types, DEFAULT, *(WORDS[name] for name in names))


def assert_same(told: dict[str, Any], types: int, word: int) -> None:
    """Assert the results of all calls under a word, on the calling thread and on the pool's, and what it left."""
    expected = default(HOST[0], types)["here"][str(DEFAULT)]
    assert len(expected) == len(gradients(types))
    for where in ("here", "pool"):
        got = told[where][str(word)]
        differ = [name for name in expected if got[name] != expected[name]]
        assert not differ, f"{where}, {word:#x}: {len(differ)} of {len(expected)} results differ: {differ}"
    assert told["changed"] == []


@tiers("isa, types, names", [(isa, FEW, SOME) for isa in HOST[:1]], long=[(isa, ALL, tuple(WORDS)) for isa in HOST])
def test_the_bits_are_those_of_the_default(isa: str, types: int, names: tuple[str, ...]) -> None:
    """Each call by the calling thread and by threads of the pool, both set; and of every instruction set the same."""
    for word in (DEFAULT, *(WORDS[name] for name in names)):
        assert_same(default(isa, types, names), types, word)


def test_the_words_are_really_set() -> None:
    """NumPy's own products of the like of these data are changed by every word that does not only trap."""
    told = default(HOST[0], FEW)["numpy"]
    for name, word in WORDS.items():
        if str(word) in told:
            differ = [call for call, digest in told[str(word)].items() if digest != told[str(DEFAULT)][call]]
            assert "plain products subnormal f32" in differ, name
            assert ("plain products normal f32" in differ) == (word & TO_ZERO != 0)


@pytest.mark.long
@pytest.mark.parametrize("isa", HOST)
@pytest.mark.parametrize("name", WORDS)
def test_planned_and_compiled_under_another_word(isa: str, name: str) -> None:
    assert_same(child(isa, ALL, WORDS[name]), ALL, WORDS[name])

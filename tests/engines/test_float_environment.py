"""Gradients keep their bits, and the control register its word, whatever flushing, rounding and traps that asks for."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
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
from tests.support.engine_helpers import HOST
from tests.support.places import ROOT
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
_lines: list[str] = []

pytestmark = pytest.mark.skipif("avx2" not in HOST, reason="MXCSR is of x86")


@pytest.fixture(scope="module", autouse=True)
def summary() -> Iterator[None]:
    yield
    print("\n" + "\n".join(_lines), end="")


@functools.cache
def child(isa: str, *words: int) -> dict[str, Any]:
    """Make all calls under these words in a process of its own; fail with the call it died in."""
    command = [sys.executable, "-m", "tests.engines.float_environment", *map(str, words)]
    environment = os.environ | {"CONVGRAD_MAX_ISA": isa}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    *_, last = done.stdout.splitlines() or ["it ran nothing"]
    if done.returncode:
        died = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
        pytest.fail(f"{isa}: {died} in {last}\n{done.stderr[-1500:]}")
    told: dict[str, Any] = json.loads(last)
    return told


def default(isa: str) -> dict[str, Any]:
    """Return what one process did under the default word, then under all others."""
    return child(isa, DEFAULT, *WORDS.values())


def assert_same(got: dict[str, str], expected: dict[str, str]) -> int:
    differ = [name for name in expected if got[name] != expected[name]]
    assert not differ, f"{len(differ)} of {len(expected)} results differ: {differ}"
    return len(expected)


@tiers("isa", HOST, every=2)
def test_the_bits_are_those_of_the_default(isa: str) -> None:
    """Each call by the calling thread and by threads of the pool, both set; and of every instruction set the same."""
    told, expected = default(isa), default(HOST[0])["here"][str(DEFAULT)]
    assert len(expected) == len(gradients())
    results = sum(
        assert_same(told[where][str(word)], expected)
        for where in ("here", "pool")
        for word in (DEFAULT, *WORDS.values())
    )
    _lines.append(f"{isa}: {results} results of {len(expected)} calls under {len(WORDS)} words and the default")


def test_the_words_are_really_set() -> None:
    """NumPy's own products of the like of these data are changed by every word that does not only trap."""
    told = default(HOST[0])["numpy"]
    for name, word in WORDS.items():
        if str(word) in told:
            differ = [call for call, digest in told[str(word)].items() if digest != told[str(DEFAULT)][call]]
            _lines.append(f"NumPy engine, {name}: {len(differ)} of {len(told[str(word)])} results differ")
            assert "plain products subnormal f32" in differ
            assert ("plain products normal f32" in differ) == (word & TO_ZERO != 0)


@tiers("isa", HOST, every=2)
def test_the_register_is_as_it_was_set(isa: str) -> None:
    assert default(isa)["changed"] == []


@pytest.mark.parametrize(
    ("isa", "name"),
    [pytest.param(isa, name, marks=pytest.mark.long) for isa in HOST for name in WORDS],
)
def test_planned_and_compiled_under_another_word(isa: str, name: str) -> None:
    told = child(isa, WORDS[name])
    expected = default(HOST[0])["here"][str(DEFAULT)]
    results = sum(assert_same(told[where][str(WORDS[name])], expected) for where in ("here", "pool"))
    assert told["changed"] == []
    _lines.append(f"{isa}, everything made under '{name}': {results} results")

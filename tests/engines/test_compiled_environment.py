"""Kernels are planned and compiled, and Python code computes, as in the default floating-point environment."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest

from convgrad.float_environment import in_default_environment
from convgrad.formats import FORMATS, store
from tests.engines.float_environment import DEFAULT, DENORMALS_ARE_ZERO, DOWN, FLUSH, TO_ZERO, UP, ControlRegister
from tests.support.children import run_program
from tests.support.engine_helpers import HOST
from tests.support.tiers import tiers

WORDS = [
    DEFAULT | rounding | flush | zero
    for rounding, flush, zero in itertools.product((0, DOWN, UP, TO_ZERO), (0, FLUSH), (0, DENORMALS_ARE_ZERO))
]
EVERYTHING = WORDS[-1]
QUICK = [("f64", [EVERYTHING])]
LONG = [("", WORDS), *((",".join(FORMATS), [word]) for word in WORDS[1:])]

pytestmark = pytest.mark.skipif("avx2" not in HOST, reason="MXCSR is of x86")


@tiers("kinds, words", QUICK, long=LONG)
def test_nothing_differs_from_the_default(kinds: str, words: list[int]) -> None:
    """The machine code that rounds to each format, and with kinds: results, plans, bounds, verdicts, register."""
    *_, last = run_program("tests.engines.compiled_environment", kinds, DEFAULT, *words, CONVGRAD_CACHE_DIR="off")
    told = json.loads(last)
    expected = told[str(DEFAULT)]
    assert len(expected) > (25 if kinds else 4)
    for word, found in told.items():
        assert {name for name in expected.keys() | found.keys() if found.get(name) != expected.get(name)} == set(), word


@pytest.mark.parametrize("word", [EVERYTHING])
def test_numbers_are_rounded_in_the_default(word: int) -> None:
    """Constants of kernels and results of NumPy are rounded by this function."""
    values, register = np.array([2.0**-9 * 1.3, 2.0**-150, -1e-40, 1 + 2.0**-9, 3e38, 500.0]), ControlRegister()
    with np.errstate(all="ignore"):
        expected = {name: store(values, fmt).tobytes() for name, fmt in FORMATS.items()}
        register.put(word)
        try:
            found = {name: store(values, fmt).tobytes() for name, fmt in FORMATS.items()}
        finally:
            register.put(DEFAULT)
    assert found == expected


@in_default_environment
def fail(register: ControlRegister) -> None:
    assert register.get() & DEFAULT == register.get() & ~0x3F == DEFAULT
    raise KeyboardInterrupt


def test_the_environment_is_restored_after_an_error() -> None:
    register = ControlRegister()
    register.put(EVERYTHING)
    try:
        with pytest.raises(KeyboardInterrupt):
            fail(register)
        left = register.get()
    finally:
        register.put(DEFAULT)
    assert left & ~0x3F == EVERYTHING


def test_a_function_is_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(store)) is store

"""Where memory is limited, what cannot be had is a MemoryError, never the process's end, and later calls compute."""

from __future__ import annotations

import json
import sys
from itertools import product
from typing import Any

import pytest

from convgrad.engines.cuda.kernels import COMPILING_MIB
from tests.support.children import run_program
from tests.support.engine_helpers import HOST
from tests.support.tiers import tiers

if not sys.platform.startswith("linux"):
    pytest.skip("limits memory as Linux does", allow_module_level=True)

from tests.package.limited import BEGINNINGS, COUNTED, MIB, PERHAPS, TOO_LARGE

PLAIN = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}  # the allocator keeps nothing back
COMPILING = 256  # MiB in which kernels can be compiled for sure
CLEAR = {"MemoryError", "ConvgradError"}
QUICK = [("AS", 160)]  # MiB
LONG = [case for case in product(COUNTED, (2048, 512, 400, 320, 256, 160, 96, 64, 48)) if case not in QUICK]


def child(limit: str, room: float, *names: str) -> list[dict[str, Any]]:
    """Make attempts in a process with so much room; fail with the attempt it died in."""
    environment = {"CONVGRAD_CACHE_DIR": "off"} | (PLAIN if names == ("scratch",) else {})
    lines = run_program("tests.package.limited", limit, room, *names, **environment)
    made = [json.loads(line) for line in lines if line.startswith("{")]
    assert [one["name"] for one in made] == [name for name in names if name not in BEGINNINGS]
    return made


def assert_clear(one: dict[str, Any]) -> bool:
    """Assert that an attempt computed the right values or raised a clear error, and that small calls compute then."""
    if one["computed"] is None:
        assert CLEAR & set(one["kinds"]), one
        assert "allocate" in one["raised"], one
    else:
        assert one["computed"], one
    assert one["usable"] is True, one
    return bool(one["computed"])


@tiers("limit", COUNTED, every=2)
def test_what_fits_computes_and_what_is_too_large_does_not(limit: str) -> None:
    """The compiler is loaded under the limit; 100 threads have no room for their stacks, perhaps."""
    for one in child(limit, 512, "cold", "small", "few kernels", "100 threads", *TOO_LARGE):
        fits = assert_clear(one)
        assert one["name"] == "100 threads" or fits == (one["name"] not in TOO_LARGE), one


@tiers("limit, room", QUICK, long=LONG)
def test_what_perhaps_fits(limit: str, room: int) -> None:
    outcomes = {one["name"]: assert_clear(one) for one in child(limit, room, *PERHAPS)}
    assert outcomes["kernels"] or room < COMPILING  # a compiler's thread, its stack and arena, and what it takes
    assert outcomes["512 channels"] or room < COMPILING
    fits = room / (9 * 3072**2 * 4 / MIB)
    assert outcomes["3072 channels"] or fits < 2
    assert not outcomes["3072 channels"] or fits > 1


@tiers("limit", COUNTED, every=2)
def test_scratch_that_cannot_be_had(limit: str) -> None:
    (one,) = child(limit, 512, "scratch")
    if HOST:
        assert not assert_clear(one)


@pytest.mark.skipif(not HOST, reason="the compiler is not loaded")
def test_no_room_to_load_the_compiler() -> None:
    (one,) = child("AS", 100, "cold", "small")
    assert "MemoryError" in one["kinds"]
    assert one["raised"] == "unable to allocate 192 MiB for loading LLVM"


@pytest.mark.skipif(not HOST, reason="nothing is compiled")
@tiers("room", [40], long=[4, 12, 24, 48, 64, 80, 96])
def test_no_room_to_compile_for_gpus(room: int) -> None:
    (one,) = child("AS", room, "loaded", "kernel for GPUs")
    assert one["computed"] or "MemoryError" in one["kinds"]
    assert one["computed"] is None or room > COMPILING_MIB


@pytest.mark.skipif(not HOST, reason="nothing is compiled")
@tiers("limit", COUNTED)
def test_no_room_to_compile(limit: str) -> None:
    (one,) = child(limit, 0.25, "few kernels")
    assert "MemoryError" in one["kinds"]
    assert one["usable"] is True

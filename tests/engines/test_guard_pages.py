"""No byte outside operands, output and scratch is touched: random problems of every class among guard pages.

Each problem runs flush with the page behind and with the page before, in another process, which names it first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from tests.engines.guarded import CACHE_LINE, Guarded, Placed
from tests.support.classes import NAMES
from tests.support.engine_helpers import HOST
from tests.support.forward_problems import OPERATORS
from tests.support.places import ROOT

PROBLEMS = 50  # of a child of the long tier,
FEW = 20  # and of the quick one
QUICK, LONG = range(1), range(100, 200)
DATA, DATA_LONG = range(1), range(100, 160)  # each of half as many problems
_done: Counter[str] = Counter()
_data: Counter[str] = Counter()

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects pages as Linux does"),
    pytest.mark.skipif(not HOST, reason="no generated kernels run here"),
]


@pytest.fixture(scope="module", autouse=True)
def summary() -> Iterator[None]:
    yield
    by_class = ", ".join(f"{name} {_done[name]}" for name in NAMES)
    print(
        f"\n{_done['problems']} problems in {_done['placements']} placements, {_done['strided']} with strided arrays, "
        f"{_done['accumulated']} accumulated, {_done['scratch']} guarded scratches: {by_class}",
        end="",
    )
    print(f"\nforwards and data gradients: {dict(_data)}", end="")


def child(seed: int, count: int, program: str = "tests.engines.guarded") -> Counter[str]:
    """Run problems in a process of its own; fail with the problem it died in."""
    environment = os.environ | {"CONVGRAD_MAX_ISA": HOST[seed % len(HOST)]}
    command = [sys.executable, "-m", program, str(seed), str(count)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    *_, last = done.stdout.splitlines() or ["it ran nothing"]
    if done.returncode:
        died = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
        pytest.fail(f"seed {seed}: {died} in {last}\n{done.stderr[-1500:]}")
    return Counter(json.loads(last))


def run_child(seed: int, count: int) -> None:
    done = child(seed, count)
    _done.update(done)
    assert done["problems"] == count
    assert done["placements"] == 2 * count
    assert done["scratch"] > 0


@pytest.mark.parametrize("seed", QUICK)
def test_problems_among_guard_pages(seed: int) -> None:
    run_child(seed, FEW)


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG)
def test_more_problems_among_guard_pages(seed: int) -> None:
    run_child(seed, PROBLEMS)


def run_data_child(seed: int, count: int) -> None:
    done = child(seed, count, "tests.engines.guarded_forward")
    _data.update(done)
    assert done["problems"] == count
    assert done["placements"] == 2 * count
    assert min(done[name] for name in ("strided", "accumulated", "with bias", *OPERATORS.values())) > 0


@pytest.mark.parametrize("seed", DATA)
def test_forwards_and_data_gradients_among_guard_pages(seed: int) -> None:
    run_data_child(seed, FEW // 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", DATA_LONG)
def test_more_forwards_and_data_gradients_among_guard_pages(seed: int) -> None:
    run_data_child(seed, PROBLEMS // 2)


def run_tiles_child(seed: int, count: int) -> None:
    done = child(seed, count, "tests.engines.guarded_winograd")
    assert done["placements"] == 2 * count
    assert min(done[name] for name in ("strided", "weights", "dst", "src")) > 0


def test_tiles_among_guard_pages() -> None:
    run_tiles_child(0, FEW // 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", DATA_LONG)
def test_more_tiles_among_guard_pages(seed: int) -> None:
    run_tiles_child(seed, PROBLEMS // 2)


def test_a_fault_is_told_with_its_problem() -> None:
    with pytest.raises(pytest.fail.Exception, match="SIGSEGV in an image too many"):
        child(0, 0)


@pytest.mark.parametrize("at_end", [True, False])
def test_a_byte_beside_an_array_is_seen(at_end: bool) -> None:
    placed = Placed(np.ones((3, 5), np.float16), (30, 4), at_end)
    assert placed.intact()
    gap = placed.memory.start + 2  # between two elements
    placed.memory.inside[gap] ^= 1
    assert not placed.intact()
    memory = Guarded(100, at_end, CACHE_LINE)
    assert memory.address % CACHE_LINE == 0
    assert memory.intact()
    memory.inside[memory.start + 100 if at_end else 100] ^= 1
    assert not memory.intact()

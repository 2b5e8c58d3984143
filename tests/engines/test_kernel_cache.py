"""The kernel cache: compiled once for many threads, evicted while it runs, and bounded in memory over many shapes."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines.llvm import execute, isas, jit
from convgrad.spec.geometry import effective_kernel
from tests.support.children import HANG_S, Array, Layer, in_child
from tests.support.tiers import tiers

CALLERS = 32
MAX_GROWTH_MB = 32.0
LAYERS = [
    Layer((30,), (3,), channels, type=operand, data_format=data_format)
    for (channels, operand), data_format in itertools.product(
        (((3, 16), "f32"), ((5, 16), "bf16"), ((7, 40), "f16"), ((16, 9), "f32"), ((24, 24), "bf16")), ("NXC", "NCX")
    )
]


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forget kernels and prepared calls, for the test; again whenever called."""

    def forget() -> None:
        monkeypatch.setattr(jit._linker, "kernels", OrderedDict())
        monkeypatch.setattr(execute, "_kept", OrderedDict())
        engines._ready.cache_clear()  # as the patches keep what was there, calls would still find it

    isas.host_isas()  # instructions are tried by modules of their own, once in a process
    forget()
    return forget


def at_once(calls: list[list[Layer]], expected: dict[Layer, Array]) -> list[bool]:
    """Make lists of calls, each on its own thread, all begun together; tell of each result whether it is right."""
    begin, right = threading.Barrier(len(calls)), []

    def caller(layers: list[Layer]) -> None:
        begin.wait()
        right.extend(np.array_equal(layer(), expected[layer]) for layer in layers)

    threads = [threading.Thread(target=caller, args=(layers,)) for layers in calls]
    for one in threads:
        one.start()
    for one in threads:
        one.join(HANG_S)
    assert not any(one.is_alive() for one in threads)
    return right


# -- in a new interpreter --------------------------------------------------------------------------------------------


def first_calls() -> None:
    """Make a process's first call on all threads at once; print how many were right, and the kernels compiled."""
    layer, ones = LAYERS[0], []
    begin = threading.Barrier(CALLERS)

    def caller() -> None:
        begin.wait()
        ones.append(layer().tobytes())

    threads = [threading.Thread(target=caller) for _ in range(CALLERS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    # Modules that instructions are tried by: sums and two roundings of pairs, products of tiles.
    tried = sum(3 * bool(isa.pairs) + bool(isa.tiles) for isa in isas.supported())
    print(json.dumps([ones.count(layer().tobytes()), jit._linker.number - tried]))


def new_layers(seed: int, widths: Sequence[int]) -> Iterator[Layer]:
    """Small layers without end, no two alike, of every class, rank, type and layout; ``widths`` of a dense one."""
    rng, seen = np.random.default_rng([71, seed]), set()
    while True:
        kind, axes = str(rng.choice(["dense", "depthwise", "grouped", "thin"])), int(rng.integers(1, 4))
        most = {1: 200, 2: 18, 3: 8}[axes]
        kernel = tuple(rng.integers(1, {1: 10, 2: 6, 3: 4}[axes], axes).tolist())
        dilation, pad = int(rng.integers(1, 3)), int(rng.integers(0, 3))
        extents = tuple(int(rng.integers(effective_kernel(k, dilation), most + 12)) for k in kernel)
        groups, inner, outer = 1, int(rng.choice(widths)), int(rng.choice(widths))
        if kind == "depthwise":
            groups, inner, outer = int(rng.integers(2, 80)), 1, 1
        elif kind == "grouped":
            groups, inner, outer = int(rng.integers(2, 9)), max(2, inner // 4), max(2, outer // 4)
        elif kind == "thin":
            inner, outer = (int(rng.integers(1, 5)), outer)[:: int(rng.choice([1, -1]))]
        layer = Layer(
            extents, kernel, (groups * inner, groups * outer), int(rng.integers(1, 4)), groups,
            int(rng.integers(1, 4)), pad, dilation, str(rng.choice(["f32", "bf16", "f16"])),
            str(rng.choice(["f32", ""])) or None, str(rng.choice(["NXC", "NCX"])),
        )  # fmt: skip
        if layer not in seen:
            seen.add(layer)
            yield layer


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def many_shapes(count: int, warm: int, widths: tuple[int, ...]) -> None:
    """Call layers, no two alike; print by how many MB memory grew once warm, and the kernels and calls kept."""
    shapes = new_layers(0, widths)
    for at in range(count):
        if at == warm:
            warm_mb = resident_mb()
        next(shapes)(1 + at % 2)
    print(json.dumps([resident_mb() - warm_mb, len(jit._linker.kernels), len(execute._kept)]))


# -- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", [1, 5])
def test_many_threads_ask_for_kernels_not_yet_compiled(kernels: int, nothing_compiled: Callable[[], None]) -> None:
    """Each is compiled once, whoever asks first."""
    layers = LAYERS[:kernels]
    before = jit._linker.number
    expected = {layer: layer() for layer in layers}
    alone = jit._linker.number - before
    assert alone >= kernels / 2, "the layers share their kernels"
    nothing_compiled()
    before = jit._linker.number
    orders = [layers[at % kernels :] + layers[: at % kernels] for at in range(CALLERS)]
    right = at_once(orders, expected)
    compiled = jit._linker.number - before
    assert compiled == alone
    assert right == [True] * CALLERS * kernels


def test_many_threads_make_the_first_call() -> None:
    """All results are equal, of one kernel."""
    assert in_child(__name__, "first_calls") == [CALLERS, 1]


@tiers("seconds", [0.2], long=[20])
def test_kernels_leave_while_they_run(
    seconds: float, nothing_compiled: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 threads, 10 layers, and room for two kernels and prepared calls: who runs a kernel keeps it."""
    monkeypatch.setattr(jit, "CAPACITY", 2)
    monkeypatch.setattr(execute, "CAPACITY", 2)
    expected = {layer: layer() for layer in LAYERS}
    before, give_up = jit._linker.number, time.perf_counter() + seconds
    right: list[bool] = []

    def caller(me: int) -> None:
        rng = np.random.default_rng(me)
        while time.perf_counter() < give_up or jit._linker.number < before + 10:
            layer = LAYERS[rng.integers(len(LAYERS))]
            right.append(np.array_equal(layer(1 + me % 3), expected[layer]))

    threads = [threading.Thread(target=caller, args=(me,)) for me in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(seconds + HANG_S)
    compiled = jit._linker.number - before
    assert not any(one.is_alive() for one in threads)
    assert all(right)
    assert compiled >= 10
    assert len(jit._linker.kernels) <= 2
    assert len(execute._kept) <= 2


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.long
@pytest.mark.parametrize(("count", "warm", "widths"), [(10_000, 2_000, tuple(range(8, 80)))], ids=["long"])
@pytest.mark.timeout(3600)
def test_memory_over_many_shapes(count: int, warm: int, widths: tuple[int, ...]) -> None:
    """All caches, of at most 1,024 entries, are full when memory is first measured."""
    growth_mb, kernels, prepared = in_child(__name__, "many_shapes", count, warm, widths, timeout=3600)
    assert growth_mb < MAX_GROWTH_MB
    assert kernels <= jit.CAPACITY
    assert prepared <= execute.CAPACITY

"""The pool: settings, several callers at once, errors, Ctrl-C, fork."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import convgrad
from convgrad import engines
from convgrad.engines import pool
from convgrad.engines import scratch as kept_memory
from convgrad.engines import settings as setting
from convgrad.engines.addresses import words
from convgrad.engines.llvm import isas
from convgrad.errors import ConvgradError
from convgrad.notation import problem
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of
from tests.support.children import HANG_S, Layer
from tests.support.engine_helpers import Array, empty

pytestmark = pytest.mark.usefixtures("eight_cores")  # so many threads run

LAYERS = [Layer((20, 20), (3, 3), (40, 70), batch=4, pad=1), Layer((30,), (3,), (7, 9), batch=2, data_format="NCX")]
TINY = [Layer((4,), (1,), (1, 1)), Layer((3, 3), (2, 2), (2, 2), groups=2), Layer((9,), (3,), (17, 33), type="bf16")]


def call_of(line: str) -> tuple[object, list[Array]]:
    one = problem(line)
    assert isinstance(one.geometry, Conv)
    return one, [np.ones(s, np.float32) for s in (one.geometry.src_shape, one.geometry.dst_shape)]


@pytest.mark.parametrize(
    ("settings", "threads", "expected"),
    [
        ({"CONVGRAD_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, None, 3),
        ({"OMP_NUM_THREADS": "5,2"}, None, 5),
        ({"OMP_NUM_THREADS": "none", "CONVGRAD_NUM_THREADS": "2"}, None, 2),
        ({"CONVGRAD_NUM_THREADS": "3"}, 7, 7),
        ({"CONVGRAD_NUM_THREADS": "4096"}, None, 4096),
        ({"OMP_NUM_THREADS": "9" * 30}, None, len(os.sched_getaffinity(0))),
        ({}, None, len(os.sched_getaffinity(0))),
    ],
)
def test_the_number_of_threads(
    settings: dict[str, str], threads: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CONVGRAD_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert setting.count(threads) == expected


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "4097", "99999", "9" * 30, "0" * 19 + "19999"])
@pytest.mark.parametrize("name", ["CONVGRAD_NUM_THREADS"])
def test_settings_that_are_not_understood(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONVGRAD_NUM_THREADS", raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(ConvgradError, match=f"{name} must be a positive integer, 4096 at most; got '{value}'"):
        setting.count(None)


def test_the_cap_on_instruction_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    one, operands = call_of("BWD_W f32 NXC mb1ic4iw9oc4ow9kw3pw1")
    for cap in setting.CAPS:
        monkeypatch.setenv("CONVGRAD_MAX_ISA", cap)
        choice = engines.execute(one, operands, empty(one))  # type: ignore[arg-type]
        usable = [i.name for i in isas.host_isas()]
        if cap in usable:
            assert str(choice) == f"generated, {cap}"
            assert engines.height(one) == height_of(one)  # type: ignore[arg-type]
        elif cap == "numpy":
            assert str(choice).startswith("numpy: CONVGRAD_MAX_ISA=numpy")
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "sse")
    with pytest.raises(ConvgradError, match="must be one of amx, avx512bf16, avx512, avx2, neon, numpy; got 'sse'"):
        engines.execute(one, operands, empty(one))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("BWD_W f64 NXC mb1ic4iw9oc4ow9kw3pw1", "f32; got f64"),
        ("BWD_D f64 NXC mb1ic4iw9oc4ow9kw3pw1", "f32; got f64"),
        ("BWD_W f32 NXC mb0ic4iw9oc4ow9kw3pw1", "nothing to sum"),
    ],
)
def test_the_numpy_engine_elsewhere(line: str, reason: str) -> None:
    assert reason in engines.choose(problem(line)).reason


def test_an_interrupt_while_scratch_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(np.ndarray):  # type: ignore[type-arg]
        @property
        def ctypes(self) -> object:
            raise KeyboardInterrupt

    scratch, sizes = kept_memory.Scratch(), (1000, 5000)
    for size in sizes:
        with monkeypatch.context() as patched:
            patched.setattr(kept_memory.np, "empty", lambda n, kind: np.zeros(n, kind).view(Interrupted))
            with pytest.raises(KeyboardInterrupt):
                scratch.address(size)
        address, memory = scratch.address(size)
        assert address % 64 == 0
        assert memory.ctypes.data <= address
        assert address + size <= memory.ctypes.data + memory.nbytes


def test_memory_that_threads_share_is_nobody_elses() -> None:
    shared = kept_memory.SharedScratch()
    first, second = shared.take(100), shared.take(100)
    assert not np.shares_memory(first, second)
    shared.give_back(second)
    assert shared.take(50) is second
    assert shared.take(200).size == 200


@pytest.mark.parametrize("time_ms", [1.0, 1000.0])
def test_an_error_on_a_thread_reaches_the_caller(time_ms: float) -> None:
    caller = threading.get_ident()
    met = threading.Event()

    def kernel(_arguments: int, _scratch: int, _number: int) -> None:
        if threading.get_ident() == caller:
            met.wait(HANG_S)
            while not arguments[-1]:
                time.sleep(1e-3)
            return
        met.set()
        raise MemoryError("no room")

    arguments = words(3)
    with pytest.raises(MemoryError, match="no room"):
        pool.run(kernel, arguments, 64, 3, time_ms)
    assert arguments[-1] == 1


@pytest.mark.parametrize("interrupts", [1, 3])
def test_no_interrupt_leaves_while_others_compute(interrupts: int) -> None:
    """Ctrl-C while the caller waits for the others' end, more than once: the arrays are theirs until they are done."""
    caller = threading.get_ident()
    arguments = words(3)
    at_work, ended = threading.Event(), threading.Event()

    def kernel(_arguments: int, _scratch: int, _number: int) -> None:
        if threading.get_ident() == caller:
            at_work.wait(HANG_S)
            return
        arguments[-2] = 1
        at_work.set()
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.04)
        all_came.wait(HANG_S)
        time.sleep(0.02)
        ended.set()
        arguments[-2] = 0

    left, all_came = [interrupts], threading.Event()

    def interrupt(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            signal.setitimer(signal.ITIMER_REAL, 0)
            all_came.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.run(kernel, arguments, 64, 2, 1.0)
        assert ended.is_set()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert left == [0]


def test_the_pool_outlives_an_error() -> None:
    """After errors on its threads, as many of them serve the next call, and it is right."""

    def kernel(_arguments: int, _scratch: int, _number: int) -> None:
        raise MemoryError("no room")

    expected = LAYERS[0](1)
    for time_ms in (1.0, 1000.0) * 5:
        with pytest.raises(MemoryError, match="no room"):
            pool.run(kernel, words(3), 64, 4, time_ms)
        assert np.array_equal(LAYERS[0](4), expected)
    at_once = threading.Barrier(4)
    pool.run(lambda *_: bool(at_once.wait(HANG_S)), words(3), 64, 4, 1.0)


def test_callers_from_executors_and_tasks() -> None:
    """Threads of an executor, calls made by calls, and asyncio.to_thread, which hands the setting of threads on."""
    expected = [layer(1).tobytes() for layer in LAYERS]

    def inner(at: int) -> bytes:
        return LAYERS[at % 2](1 + at % 4).tobytes()

    with ThreadPoolExecutor(8) as outer, ThreadPoolExecutor(8) as within:
        nested = list(outer.map(lambda at: (inner(at), within.submit(inner, at + 1).result(HANG_S)), range(80)))
    assert nested == [(expected[at % 2], expected[(at + 1) % 2]) for at in range(80)]

    async def gather() -> list[tuple[int, bytes]]:
        with convgrad.threads(3):
            return await asyncio.gather(
                *(asyncio.to_thread(lambda at=at: (setting.count(None), inner(at))) for at in range(40))
            )

    assert asyncio.run(gather()) == [(3, expected[at % 2]) for at in range(40)]


@pytest.mark.parametrize("layer", TINY, ids=["one weight", "grouped", "thin"])
def test_many_threads_for_little_work(layer: Layer) -> None:
    expected = layer(1)
    for threads in (2, 64, 1000):
        assert all(np.array_equal(layer(threads), expected) for _ in range(20))


def test_arrays_nobody_else_holds() -> None:
    """Operands, and results dropped at once, live as long as any thread uses them."""
    expected = LAYERS[0](1)

    def caller(count: int) -> bool:
        right = True
        for at in range(count):
            LAYERS[0](4)
            right &= np.array_equal(LAYERS[0](1 + at % 4), expected)
        return right

    with ThreadPoolExecutor(4) as callers:
        results = [callers.submit(caller, 4) for _ in range(4)]
        while not all(one.done() for one in results):
            gc.collect(0)
            time.sleep(1e-3)
    assert [one.result() for one in results] == [True] * 4


@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_call_waits_for_no_other(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two long calls at once, the later one is served while the other still is, from the first call on."""
    monkeypatch.setattr(pool, "_pool", pool._Pool())
    begun, served = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def slow(_arguments: int, _scratch: int, _number: int) -> None:
        begun.set()
        in_time.append(served.wait(HANG_S))

    other = threading.Thread(target=lambda: pool.run(slow, words(3), 64, threads, 1000.0))
    other.start()
    assert begun.wait(HANG_S)
    pool.run(lambda *_: served.set(), words(3), 64, threads, 1000.0)
    other.join()
    assert in_time == [True] * threads

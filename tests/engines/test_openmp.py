"""The threads of PyTorch's OpenMP runtime: which calls run on them, how many, with which bits, and where ours serve."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.cli import info
from convgrad.engines import openmp, pool, pools, scratch, settings
from convgrad.engines.addresses import words
from convgrad.engines.llvm import wait
from convgrad.errors import UnsupportedError
from tests.support.children import HANG_S, TORCH, Layer, in_child

pytestmark = pytest.mark.skipif(not TORCH, reason="there is no runtime of OpenMP")

DENSE = Layer((20, 20), (3, 3), (40, 70), batch=4, pad=1)
SOME = [DENSE, *(Layer((20, 20), (3, 3), (16, 40), batch=4, pad=1, role=role) for role in ("dst", "src"))]
CONV = Layer((20, 20), (3, 3), (16, 40), batch=4, pad=1, role="dst")
CALLED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
LONG_MS = 2 * pool.LONG_MS


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> openmp.Runtime:
    """PyTorch's runtime, which believes that there are four cores."""
    pytest.importorskip("torch")
    found = openmp.runtime()
    assert found is not None
    four = found._replace(cores=lambda: 4)
    monkeypatch.setattr(openmp, "_runtimes", [four])
    monkeypatch.setattr(openmp, "_team", openmp._Team())
    return four


def driver(run: Callable[[int], object]) -> Any:
    """A driver that is given the address of its scratch, which threads of OpenMP can call."""
    made: Any = CALLED(lambda _, at: run(at) and None)
    made.address = ctypes.cast(made, ctypes.c_void_p).value
    return made


class Seen:
    """The threads that ran a driver, and their scratch."""

    def __init__(self, expected: int) -> None:
        self.threads: dict[int, int] = {}
        self.together = threading.Barrier(expected)
        self.driver = driver(self.note)

    def note(self, at: int) -> None:
        self.threads[threading.get_ident()] = at
        self.together.wait(HANG_S)

    def run(self, threads: int, time_ms: float, scratch_bytes: int = 64) -> set[int]:
        with convgrad.threads(pool="openmp"):
            pools.run(self.driver, words(4), scratch_bytes, threads, time_ms)
        return set(self.threads)


# -- whose threads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "expected"), [(1, 1), (2, 2), (3, 3), (1000, 4)])
def test_threads_of_a_region(asked: int, expected: int, cores: openmp.Runtime) -> None:
    """As many as are asked for, and as there are cores; the caller is one of them."""
    seen = Seen(expected).run(asked, 1e-3)
    assert len(seen) == expected
    assert threading.get_ident() in seen


def test_threads_are_those_of_the_last_region(cores: openmp.Runtime) -> None:
    """Nobody is started for the second region of as many threads."""
    assert Seen(3).run(3, 1.0) == Seen(3).run(3, 1.0)


def test_a_team_keeps_its_size(cores: openmp.Runtime) -> None:
    """A region of fewer threads than PyTorch's ends none of these."""
    import torch  # noqa: PLC0415 - this file is read without it

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        three = Seen(3).run(3, 1.0)
        assert len(Seen(2).run(2, 1.0)) == 2
        assert Seen(3).run(3, 1.0) == three
    finally:
        torch.set_num_threads(before)


def test_long_calls_of_the_main_thread_run_on_our_pool(cores: openmp.Runtime) -> None:
    """The caller waits there and hears Ctrl-C, also on one thread."""
    assert threading.get_ident() not in Seen(1).run(1, LONG_MS)


def test_long_calls_of_other_threads_run_on_theirs(cores: openmp.Runtime) -> None:
    with ThreadPoolExecutor(1) as one:
        caller = one.submit(threading.get_ident).result()
        assert caller in one.submit(Seen(2).run, 2, LONG_MS).result()


def test_a_call_from_within_a_region_runs_alone(cores: openmp.Runtime) -> None:
    inner: list[tuple[int, set[int]]] = []

    def call(_: int) -> None:
        with convgrad.threads(pool="openmp"):
            assert not pools.helped(2, 1.0)
        inner.append((threading.get_ident(), Seen(1).run(2, 1.0)))

    with convgrad.threads(pool="openmp"):
        assert pools.helped(2, 1.0)  # before the region: on a busy machine, its team may sleep afterwards
        pools.run(driver(call), words(4), 64, 2, 1.0)
    assert len(inner) == 2
    assert all(threads == {caller} for caller, threads in inner)


@pytest.mark.parametrize("size", [64, 100, 4096, 10_000])
def test_scratch_is_each_threads_own(size: int, cores: openmp.Runtime) -> None:
    seen = Seen(4)
    seen.run(4, 1.0, size)
    at = sorted(seen.threads.values())
    assert all(address % 64 == 0 for address in at)
    assert all(after - before >= size for before, after in pairwise(at))
    kept, memory = scratch.own.address(1)
    assert kept <= at[0]
    assert at[-1] + size <= memory.ctypes.data + memory.nbytes


def test_an_error_before_a_region_reaches_the_caller(cores: openmp.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(size: int, threads: int) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(scratch.own, "address", refused)
    with pytest.raises(MemoryError, match="no room"):
        Seen(2).run(2, 1.0)


def test_code_is_held_while_a_region_runs_it(cores: openmp.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads may compile what a region runs at once: what only one of them has must not be unloaded meanwhile."""

    function_type = type("Function", (), {"address": 1})  # which nobody calls here
    made: list[weakref.ref[Any]] = []
    held: list[bool] = []

    def compiled() -> Any:
        function = function_type()
        made.append(weakref.ref(function))
        return function

    runtime = cores._replace(parallel=lambda *_: held.append(made[-1]() is not None))
    monkeypatch.setattr(openmp, "_runtimes", [runtime])
    monkeypatch.setattr(pools, "_region", lambda: (compiled, wait.REGION))
    with settings.threads(2, pool=settings.OPENMP):
        pools.run(driver(lambda _: None), words(8), 64, 2, 1.0)
    assert held == [True]


# -- which calls -----------------------------------------------------------------------------------------------------


@pytest.fixture
def used(cores: openmp.Runtime, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pools that calls run on, in order."""
    names: list[str] = []

    def watched(name: str, row: pools.Pool) -> pools.Pool:
        def run(*given: Any) -> None:
            names.append(name)
            row.run(*given)

        return pools.Pool(lambda *_: True, run)

    monkeypatch.setattr(pools, "POOLS", {name: watched(name, row) for name, row in pools.POOLS.items()})
    return names


def calls() -> dict[str, tuple[Callable[[], object], str]]:
    """Calls, and the pool that each runs on without a setting."""
    import torch  # noqa: PLC0415

    import convgrad.torch  # noqa: PLC0415

    src, weights = CONV.operands()
    src, dst = np.ascontiguousarray(src), CONV()
    x, w = (torch.from_numpy(one) for one in (src, weights))
    tensors = torch.from_numpy(np.moveaxis(src, -1, 1).copy()), torch.from_numpy(weights.transpose(3, 2, 0, 1).copy())
    layer: dict[str, Any] = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
    compiled = convgrad.compile("Convolution", x, w, **layer, data_format="NXC", weights_format="XIO")
    alike = convgrad.compile("Convolution", src, weights, **layer, data_format="NXC", weights_format="XIO")

    def backward() -> object:
        asked = [tensor.clone().requires_grad_() for tensor in tensors]
        return torch.autograd.grad(convgrad.torch.conv2d(*asked, padding=1).sum(), asked)

    return {
        "conv2d": (lambda: convgrad.torch.conv2d(*tensors, padding=1), "openmp"),
        "autograd": (backward, "openmp"),
        "a tensor": (lambda: convgrad.convolution(x, w, pads_begin=1, pads_end=1), "openmp"),
        "an array": (lambda: convgrad.convolution(src, weights, pads_begin=1, pads_end=1), "own"),
        "gradients of tensors": (
            lambda: convgrad.convolution_backward(x, torch.from_numpy(dst), w, pads_begin=1, pads_end=1),
            "openmp",
        ),
        "gradients of arrays": (
            lambda: convgrad.convolution_backward(src, dst, weights, pads_begin=1, pads_end=1),
            "own",
        ),
        "compiled, a tensor": (lambda: compiled(x, w), "openmp"),
        "compiled, a tensor that lies otherwise": (lambda: compiled(x.flip(2), w), "openmp"),
        "compiled, an array": (lambda: alike(src, weights), "own"),
    }


def test_who_computes_by_default_and_by_setting(used: list[str]) -> None:
    for name, (call, expected) in calls().items():
        with convgrad.threads(2):
            used.clear()
            call()
            assert used == [expected] * len(used) != [], name
        for asked in settings.POOLS:
            with convgrad.threads(2, pool=asked):
                used.clear()
                call()
            assert used == [asked] * len(used) != [], name


def test_settings_within_settings() -> None:
    with convgrad.threads(3, pool="own"):
        with convgrad.threads(pool="own"):
            assert settings.count(None) == 3
        with convgrad.threads(2):
            assert (settings.count(None), settings.on("openmp", settings.pool)) == (2, "own")
    assert settings.on("openmp", settings.pool) == "openmp"
    assert settings.pool() == "own"


def test_a_pool_of_another_name() -> None:
    with pytest.raises(convgrad.InvalidAttributeError, match=r"one of own, openmp; got 'gomp' \[D11\]"):
        convgrad.threads(pool="gomp").__enter__()


# -- bits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_error", [1, 64], ids=["direct", "tiles"])
@pytest.mark.parametrize("layer", SOME, ids=lambda layer: layer.role)
def test_bits_are_those_of_our_pool(layer: Layer, max_error: float, cores: openmp.Runtime) -> None:
    with convgrad.max_error(max_error):
        expected = layer(1)
        with convgrad.threads(pool="openmp"):
            assert all(np.array_equal(layer(threads), expected) for threads in (1, 2, 3, 4) * 3)


def test_callers_at_once(cores: openmp.Runtime) -> None:
    """Each has a team of its own."""
    expected = DENSE(1)

    def call(_: int) -> bool:
        with convgrad.threads(pool="openmp"):
            return np.array_equal(DENSE(2), expected)

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(call, range(40)))


def test_pytorch_sets_another_number_between_calls(cores: openmp.Runtime) -> None:
    import torch  # noqa: PLC0415

    import convgrad.torch  # noqa: PLC0415

    before = torch.get_num_threads()
    x, w = torch.ones(4, 16, 20, 20), torch.ones(40, 16, 3, 3)
    expected = torch.nn.functional.conv2d(x, w)
    try:
        for threads in (1, 2, 3, 1, 4, 2):
            torch.set_num_threads(threads)
            assert torch.equal(convgrad.torch.conv2d(torch.relu(x), w), expected)
    finally:
        torch.set_num_threads(before)


# -- in a new interpreter --------------------------------------------------------------------------------------------


def without_torch() -> None:
    assert "torch" not in sys.modules
    reason = openmp.why_not()
    try:
        convgrad.threads(pool="openmp").__enter__()
    except UnsupportedError as error:
        reason += f"|{error}"
    before = settings.on("openmp", pools.name)
    importlib.import_module("torch")
    print(json.dumps([reason, before, settings.on("openmp", pools.name)]))


def unusual_threads() -> None:
    found = openmp.runtime()
    assert found is not None
    right = [bool(np.array_equal(layer(2), layer())) for layer in SOME]
    child = forked()
    print(json.dumps({"cores": found.cores(), "right": right, "child": child, "afterwards": forked() == child}))


def forked() -> str:
    """Fork from the thread whose team was at work, and return how a call of the child went."""
    expected, (told, to_tell) = DENSE(2), os.pipe()
    if os.fork() == 0:
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        right = settings.on("openmp", pools.name) == "own" and np.array_equal(DENSE(2), expected)
        os.write(to_tell, b"right" if right else b"wrong")
        os._exit(0)
    os.close(to_tell)
    with os.fdopen(told) as said:
        return said.read() or "hung"


@pytest.mark.long
def test_without_a_runtime() -> None:
    """Nothing is loaded to find one; there is one once PyTorch is imported."""
    reason, before, after = in_child(__name__, "without_torch")
    assert (reason.partition("; ")[0], before, after) == ("no OpenMP runtime is loaded", "own", "openmp")
    assert reason.endswith("so import torch first [D12]")


def test_unusual_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads with small stacks, each bound to a core, and none of them in a forked child."""
    monkeypatch.setenv("OMP_STACKSIZE", "48k")
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    assert in_child(__name__, "unusual_threads", pool="openmp") == {
        "cores": len(os.sched_getaffinity(0)),
        "right": [True] * len(SOME),
        "child": "right",
        "afterwards": True,
    }


@pytest.mark.long  # tests/package/test_interrupts.py has more of it
def test_the_interpreter_ends_while_a_team_computes() -> None:
    assert in_child("tests.package.test_interrupts", "leave", "daemon", "executing", "end", pool="openmp") is True


@pytest.mark.parametrize(
    ("platform", "words"),
    [("linux", "own; for PyTorch's tensors openmp"), ("darwin", "with the OpenMP runtimes of this system")],
)
def test_info_says_whose_threads(platform: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "platform", platform)
    assert info.collect()["pool"].endswith(words)


@pytest.mark.parametrize("spins", [False, True], ids=["sleeps", "spins"])
def test_a_team_that_sleeps(spins: bool, cores: openmp.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call after a rest goes without it; a call that follows at once does not."""
    ends = threading.Event()
    other = threading.Thread(target=ends.wait)
    other.start()
    assert not openmp.rests()  # nothing is known of the team
    openmp.record_member(other.native_id or 0)
    if spins:  # whether a thread that computes runs between two readings is up to the system
        monkeypatch.setattr(time, "clock_gettime_ns", lambda _: time.perf_counter_ns())
    for _ in range(3):
        monkeypatch.setattr(openmp, "AT_ONCE_S", 0.0)  # every call follows a rest
        assert openmp.rests() == openmp.rested() == (not spins)
        monkeypatch.setattr(openmp, "AT_ONCE_S", HANG_S)  # every call follows at once
        assert not openmp.rests()
    ends.set()
    other.join()


def test_a_member_of_the_team_has_ended(cores: openmp.Runtime) -> None:
    other = threading.Thread(target=int)
    other.start()
    other.join()
    while os.path.exists(f"/proc/self/task/{other.native_id}"):  # the system's thread ends after Python's
        time.sleep(1e-3)
    openmp.record_member(other.native_id or 0)
    assert not openmp.rests()
    assert openmp._team.member == 0


def test_a_region_tells_of_its_team(cores: openmp.Runtime) -> None:
    assert len(Seen(2).run(2, 1e-3)) == 2
    assert openmp._team.member in {int(name) for name in os.listdir("/proc/self/task")} - {threading.get_native_id()}

"""Fork while other threads compile, compute or load LLVM, and pools of processes: children compute, none hangs."""

from __future__ import annotations

import faulthandler
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

import numpy as np
import pytest
from llvmlite import binding

import convgrad
from convgrad import starting
from convgrad.engines.llvm import jit
from tests.support.children import GIVEN, HANG_S, POOLS, Array, Layer, compile_anew, in_child
from tests.support.tiers import tiers

FEW = 2  # forks of the quick tier, which has fewer layers too
RIGHT, WRONG = 0, 3  # exit codes; 1 is a child that hung
LAYERS = [
    Layer((40,), (3,), channels, type=operand, data_format=data_format)
    for channels, operand, data_format in (
        ((1, 16), "f32", "NXC"), ((2, 40), "bf16", "NCX"), ((3, 16), "f16", "NXC"), ((4, 48), "f32", "NCX"),
        ((5, 16), "bf16", "NXC"), ((6, 16), "f16", "NCX"), ((7, 33), "f32", "NXC"), ((9, 16), "f32", "NCX"),
    )
]  # fmt: skip
LAYERS += [
    Layer((20, 20), (3, 3), (16, 40), pad=1, role=role, type=operand, data_format=data_format)
    for role, operand, data_format in (("dst", "f32", "NXC"), ("src", "bf16", "NCX"))
]
SOME = range(0, 7, 3)  # of f32, which are compiled soon
PLANNED = {"weights": "ConvolutionBackwardWeights", "dst": "Convolution", "src": "ConvolutionBackwardData"}
BUSY = Layer((28, 28), (3, 3), (64, 64), batch=8, pad=1)  # tens of milliseconds on two threads
NEEDS_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


# -- in a new interpreter --------------------------------------------------------------------------------------------


def fork(work: Callable[[], bool]) -> int:
    """Fork a child that does some work; return its exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that there are threads is the point
        child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        os._exit(RIGHT if work() else WRONG)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def computes(*numbers: int) -> bool:
    """Return whether layers have the right results on two threads."""
    return all(np.array_equal(LAYERS[at](2), _expected[at]) for at in numbers)


_expected: dict[int, Array] = {}


def plan_anew(rng: random.Random) -> str:
    """Return the plan of a layer that no call has planned before, most likely."""
    (n, y, x, c, o), role = (rng.randrange(3, 90) for _ in range(5)), rng.choice(list(PLANNED))
    shapes = {"src": (n, y, x, c), "dst": (n, y - 2, x - 2, o), "weights": (3, 3, c, o)}
    wanted = () if role == "dst" else (shapes[role],)
    return str(convgrad.explain(PLANNED[role], *(shapes[tensor] for tensor in GIVEN[role]), *wanted, threads=2))


def fork_while_planning(count: int, others: str) -> None:
    """Fork while two threads plan, and two others compile, compute or use llvmlite; children plan and compute."""
    if others == "compiling":
        compile_anew()
    asked = SOME
    _expected.update({at: LAYERS[at](2) for at in asked})
    done = [0] * (4 if others else 2)

    def worker(me: int) -> None:
        rng = random.Random(me)
        while True:
            if me < 2:
                plan_anew(rng)
            elif others == "llvmlite":
                binding.parse_assembly("define void @f() { ret void }").verify()
            else:
                assert computes(rng.choice(asked))
            done[me] += 1

    for me in range(len(done)):
        threading.Thread(target=worker, args=(me,), daemon=True).start()
    rng, codes = random.Random(count), []
    while len(codes) < count and codes.count(RIGHT) == len(codes):
        time.sleep(rng.uniform(0, 0.005))
        codes.append(fork(lambda: bool(plan_anew(rng)) and computes(rng.choice(asked))))
    print(json.dumps({"right": codes.count(RIGHT), "all were at it": min(done) > 0}))
    sys.stdout.flush()
    os._exit(0)


def fork_many(count: int, meanwhile: str) -> None:
    """Fork while two threads compile or compute; a child asks for something else, or in turn for what they compile."""
    if meanwhile == "compiling":
        compile_anew()
    layers = range(len(LAYERS)) if count > FEW else SOME
    _expected.update({at: LAYERS[at]() for at in layers})
    busy = BUSY() if meanwhile == "executing" else None
    current: dict[int, int] = {}
    calls = [0, 0]

    def worker(me: int) -> None:
        rng = random.Random(me)
        while True:
            if meanwhile == "compiling":
                at = current[me] = rng.choice(layers[me::2])
                assert computes(at)
            else:
                assert np.array_equal(BUSY(2), busy)
            calls[me] += 1

    workers = [threading.Thread(target=worker, args=(me,), daemon=True) for me in (0, 1)]
    for one in workers:
        one.start()
    rng, codes, number = random.Random(count), [], jit._linker.number
    while len(codes) < count and codes.count(RIGHT) == len(codes):
        time.sleep(rng.uniform(0, 0.02))
        same = meanwhile == "compiling" and len(codes) % 2 == 1
        while same and jit._linker.lock.acquire(blocking=False):  # nobody is compiling
            jit._linker.lock.release()
            time.sleep(1e-4)
        theirs = set(current.values())
        asked = [at for at in layers if (at in theirs) == same]
        asked = rng.sample(asked, min(1, len(asked)))
        codes.append(fork(partial(computes, *asked)))
    alive = all(one.is_alive() for one in workers)
    print(json.dumps({"codes": codes, "calls": sum(calls), "kernels": jit._linker.number - number, "alive": alive}))
    sys.stdout.flush()
    os._exit(0)


def fork_at_first_call() -> None:
    """Fork while another thread makes the process's first call, which loads LLVM."""
    first = threading.Thread(target=LAYERS[0])
    first.start()
    while "llvmlite.binding" not in sys.modules:
        time.sleep(1e-4)
    _expected[1] = _ones(LAYERS[1])
    code = fork(computes) or fork(partial(computes, 1))
    first.join()
    print(json.dumps(code))


def fork_at_the_end(loaded: bool) -> None:
    """Fork once this thread has taken the locks of the end of the process, before or after it has loaded LLVM."""
    _expected[1] = _ones(LAYERS[1])
    if loaded:
        computes(1)
    jit.end()
    print(json.dumps(fork(partial(computes, 1))))


def _ones(layer: Layer) -> Array:
    """The result by NumPy, so that the parent need not load LLVM: 1-D, stride 1, no pads."""
    src, dst = (np.moveaxis(a[0].astype(np.float32), 0, -1) for a in layer.operands())
    if layer.data_format == "NXC":
        src, dst = src.T, dst.T
    taps = [src[k : k + len(dst)].T @ dst for k in range(layer.kernel[0])]
    return np.stack(taps).astype(layer.operands()[0].dtype)


def compute(at: int) -> bytes:
    """What a process of a pool computes."""
    return LAYERS[at](2).tobytes()


def processes(method: str, count: int) -> None:
    """Compute so many layers in two processes while a thread of this one computes; print how many are right."""
    expected = [layer().tobytes() for layer in LAYERS[:count]]
    left = threading.Event()

    def worker() -> None:
        while not left.wait(0.05):
            BUSY(2)

    one = threading.Thread(target=worker)
    one.start()
    warnings.simplefilter("ignore", DeprecationWarning)
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        right = [got == e for got, e in zip(pool.map(compute, range(count), timeout=HANG_S), expected, strict=True)]
    left.set()
    one.join()
    print(json.dumps(sum(right)))


def fork_interrupted() -> None:
    """Fork while another thread imports after Ctrl-C ended the wait for it, and interrupt the fork with Ctrl-C too."""
    done: list[bool] = []

    @starting.deferred
    def imported() -> None:
        time.sleep(0.4)
        done.append(True)

    def interrupt(*_: object) -> None:
        if not done:
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    sys.unraisablehook = lambda error: None
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    with suppress(KeyboardInterrupt):
        imported()
    code = fork(lambda: bool(done))
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps({"waited": bool(done), "free": all(map(is_free, starting._waited_for)), "code": code}))


# -- tests -----------------------------------------------------------------------------------------------------------


@NEEDS_FORK
@tiers("count", [FEW], long=[100])
@pytest.mark.parametrize(
    ("meanwhile", "whose"),
    [("compiling", "own"), *(pytest.param("executing", *one.values, marks=one.marks) for one in POOLS)],
)
def test_a_fork_while_others_are_at_it(meanwhile: str, whose: str, count: int) -> None:
    """A child of a process whose OpenMP threads were at work has none of them."""
    got = in_child(__name__, "fork_many", count, meanwhile, timeout=HANG_S + count * HANG_S, pool=whose)
    assert got["codes"] == [RIGHT] * count
    assert got["alive"]
    assert got["calls"] >= count / 2
    assert got["kernels"] >= (count / 2 if meanwhile == "compiling" else 0)


@NEEDS_FORK
@tiers("others, count", [("", 24)], long=[(others, 2000) for others in ("", "compiling", "executing", "llvmlite")])
def test_a_fork_while_others_plan(others: str, count: int) -> None:
    """A property that is cached under a lock of its class, as in Python 3.11, hangs one child in seven."""
    got = in_child(__name__, "fork_while_planning", count, others, timeout=HANG_S + count)
    assert got == {"right": count, "all were at it": True}


@NEEDS_FORK
def test_a_fork_during_the_first_call() -> None:
    assert in_child(__name__, "fork_at_first_call") == RIGHT


@NEEDS_FORK
@pytest.mark.parametrize("loaded", [False, True])
def test_a_fork_at_the_end_of_the_process(loaded: bool) -> None:
    """A handler of ``atexit`` may fork a child that computes, although its parent keeps the locks of the end."""
    assert in_child(__name__, "fork_at_the_end", loaded) == RIGHT


def test_a_fork_takes_the_locks_that_are_made_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of modules that another thread is loading: each is released as often as it is taken, or a child hangs."""
    made: list[threading.RLock] = []

    @contextmanager
    def waits() -> Iterator[None]:
        if not made:
            made.append(starting.forked_with())
        yield

    class Slow:
        def __enter__(self) -> None:
            self.wait = waits()
            self.wait.__enter__()

        def __exit__(self, *error: object) -> None:
            self.wait.__exit__(None, None, None)

    monkeypatch.setattr(starting, "_waited_for", [Slow()])
    starting._before_fork()
    starting.release_held()
    with pytest.raises(RuntimeError, match="un-acquired"):
        made[0].release()


def is_free(lock: threading.RLock) -> bool:
    """Return whether another thread can take a lock."""
    with ThreadPoolExecutor(1) as other:  # not a thread of ours, which starts under one of the locks
        return other.submit(lambda: lock.acquire(blocking=False) and lock.release() is None).result()


@pytest.mark.parametrize("line", range(1, 60))
def test_a_signal_handler_keeps_no_lock_of_a_fork(line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may raise before any line of the function that waits."""
    locks, lines = [threading.RLock() for _ in range(2)], itertools.count(1)
    monkeypatch.setattr(starting, "_waited_for", locks)

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
        if frame.f_code.co_filename != starting.__file__:
            return None
        if event == "line" and next(lines) == line:
            raise KeyboardInterrupt
        return trace

    before, began = sys.gettrace(), 4  # the first line at which the function waits
    sys.settrace(trace)
    with suppress(KeyboardInterrupt):
        starting._before_fork()
    sys.settrace(before)
    assert [is_free(lock) for lock in locks] == [line < began] * 2
    starting.release_held()
    assert all(map(is_free, locks))


@NEEDS_FORK
def test_a_fork_that_ctrl_c_interrupts_waits_and_keeps_no_lock() -> None:
    assert in_child(__name__, "fork_interrupted") == {"waited": True, "free": True, "code": RIGHT}


def test_forks_wait_for_deferred_imports() -> None:
    """A child would wait for ever for a thread that it does not have; what was imported is imported once."""
    held: list[bool] = []

    @starting.deferred
    def imported() -> list[bool]:
        held.append(not is_free(starting.loading))
        return held

    assert starting.loading in starting._waited_for
    assert imported() is imported() is held
    assert held == [True]


@tiers("method, count", [("spawn", 2)], long=[(method, 4) for method in ("spawn", "forkserver", "fork")])
def test_processes_of_a_pool(method: str, count: int) -> None:
    assert in_child(__name__, "processes", method, count) == count

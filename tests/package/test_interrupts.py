"""Ctrl-C at any moment of a call, signal handlers that call, and the interpreter's exit while kernels run."""

from __future__ import annotations

import _thread
import atexit
import faulthandler
import itertools
import json
import os
import random
import signal
import sys
import threading
import time

import numpy as np
import pytest

from convgrad.engines import pool, team
from convgrad.engines.addresses import words
from convgrad.engines.llvm import jit
from tests.support.children import HANG_S, POOLS, Layer, compile_anew, in_child
from tests.support.tiers import tiers

MOST_MS = 200.0  # of each thread's processor time from Ctrl-C to KeyboardInterrupt
FEW = 2  # interrupts of calls that compile, in the quick tier, which has fewer layers too
LATE_S = 0.5  # far more than a call of LLVM that need not wait
POLL_S = 0.02  # how long out is watched for late writes
QUICK = ("dense", "depthwise", "forward")
LAYERS = {
    "dense": Layer((56, 56), (3, 3), (64, 64), batch=2000, pad=1),
    "depthwise": Layer((56, 56), (3, 3), (128, 128), batch=2000, groups=128, pad=1),
    "grouped": Layer((56, 56), (3, 3), (128, 128), batch=4000, groups=16, pad=1),
    "forward": Layer((64, 64), (31, 31), (64, 64), batch=16, pad=15, role="dst"),
    "data gradient": Layer((64, 64), (31, 31), (64, 64), batch=16, pad=15, role="src"),
    "long row": Layer((1 << 20,), (301,), (16, 16), pad=150),
}
SMALL = Layer((56, 56), (3, 3), (64, 64), pad=1)
BUSY = Layer((56, 56), (3, 3), (64, 64), batch=100, pad=1)  # a fifth of a second
SOME = [Layer((40,), (3,), (rows, 16), type=kind) for rows in (1, 3, 5, 7) for kind in ("f32", "bf16")]
SOME += [Layer((20, 20), (3, 3), (16, 40), pad=1, role=role) for role in ("dst", "src")]
EXITS = list(itertools.product(("daemon", "waited for"), ("executing", "compiling"), ("end", "sys.exit", "atexit")))


def interrupt(sent: list[float]) -> None:
    sent.append(time.process_time())
    os.kill(os.getpid(), signal.SIGINT)


# -- in a new interpreter --------------------------------------------------------------------------------------------


def interrupt_many(name: str, threads: int, count: int, longest_s: float) -> None:
    """Interrupt a long call again and again; print after how many ms it ended, and what went wrong."""
    layer, rng = LAYERS[name], random.Random(threads)
    operands, expected = layer.operands(), SMALL()
    out = np.empty(layer.out_shape, np.float32)
    took_ms, late, usable = [], 0, 0
    for _ in range(count):
        sent: list[float] = []
        timer = threading.Timer(rng.uniform(0.05, longest_s), interrupt, (sent,))
        timer.start()
        try:
            layer(threads, out, operands)
            timer.join()
        except KeyboardInterrupt:
            if sent:
                took_ms.append(1000 * (time.process_time() - sent[0]) / threads)
        out.fill(7)
        give_up = time.perf_counter() + POLL_S
        while time.perf_counter() < give_up:
            late += not (out == 7).all()
        usable += np.array_equal(SMALL(threads), expected)
    print(json.dumps({"took_ms": took_ms, "late": late, "usable": usable}))


def interrupt_compiling(count: int) -> None:
    """Interrupt calls that compile what two other threads compile too; print how often all was well afterwards."""
    compile_anew()
    some, longest_s = (SOME, 0.3) if count > FEW else (SOME[:7:3], 0.15)
    rng, expected, wrong, interrupted = random.Random(count), [layer() for layer in some], [], 0
    left = threading.Event()

    def worker(me: int) -> None:
        mine = random.Random(me)
        while not left.is_set():
            at = mine.randrange(len(some))
            wrong.append(not np.array_equal(some[at](), expected[at]))

    workers = [threading.Thread(target=worker, args=(me,)) for me in (0, 1)]
    for one in workers:
        one.start()
    for _ in range(count):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        threading.Timer(rng.uniform(0, longest_s), interrupt, ([],)).start()
        try:
            while True:
                some[rng.randrange(len(some))]()
        except KeyboardInterrupt:
            interrupted += 1
    left.set()
    for one in workers:
        one.join()
    right = all(np.array_equal(layer(), e) for layer, e in zip(some, expected, strict=True))
    print(json.dumps({"interrupted": interrupted, "wrong": sum(wrong), "right": right}))


def call_from_a_handler(threads: int) -> None:
    """Call from a signal handler at all moments of other calls; print how many calls there were."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    calls, layers = [0, 0], [Layer((n,), (3,)) for n in range(10, 40)]

    def handler(*_: object) -> None:
        calls[1] += 1
        layers[20 + calls[1] % 10](threads)
        signal.setitimer(signal.ITIMER_REAL, 5e-5 + 1e-5 * (calls[1] % 37))

    layers[0](threads)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-3)
    give_up = time.perf_counter() + 0.3
    while time.perf_counter() < give_up or min(calls) <= 10:
        layers[calls[0] % 20](threads)
        calls[0] += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)  # a handler that is under way sets the timer once more
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps(calls))


def leave(kind: str, at: str, how: str) -> None:
    """Begin threads that execute or compile, and come to the end while they do; print what was right before."""
    if at == "compiling":
        compile_anew()
    expected = SMALL() if how == "atexit" else None
    layers = itertools.cycle(SOME if at == "compiling" else [BUSY])
    begun = threading.Barrier(3)

    def worker() -> None:
        begun.wait()
        for layer in layers if kind == "daemon" else itertools.islice(layers, 2):
            layer(2)

    def last() -> None:
        print(json.dumps(np.array_equal(SMALL(2), expected) and bool(BUSY(2).any())), flush=True)

    for _ in range(2):
        threading.Thread(target=worker, daemon=kind == "daemon").start()
    begun.wait()
    time.sleep(random.uniform(0, 0.2))
    if how == "atexit":
        atexit.register(last)
    else:
        print(json.dumps(True), flush=True)
    if how == "sys.exit":
        sys.exit(0)


def call_llvm_at_the_end(loaded: bool) -> None:
    """Print whether a thread that calls LLVM once the process is about to end waits, and whether this thread may."""
    if loaded:
        SMALL()
    jit.end()
    late = threading.Thread(target=lambda: jit.llvm().get_process_triple() if loaded else SMALL(), daemon=True)
    late.start()
    late.join(LATE_S)
    print(json.dumps([late.is_alive(), bool(SMALL().any())]), flush=True)


# -- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.every(3)
@pytest.mark.parametrize("whose", POOLS)
@tiers("count, longest_s", [(2, 0.15)], long=[(50, 0.5)], ids=["quick", "long"])
@tiers("threads", [2], long=[1])
@tiers("name", QUICK, long=[name for name in LAYERS if name not in QUICK])
def test_ctrl_c_at_any_moment(name: str, threads: int, count: int, longest_s: float, whose: str) -> None:
    """The call ends soon, nobody writes to out afterwards, and the next call is right."""
    asked = name, threads, count, longest_s
    got = in_child(__name__, "interrupt_many", *asked, timeout=HANG_S + 5 * count, pool=whose)
    took_ms = sorted(got["took_ms"])
    p95 = took_ms[-1 - len(took_ms) // 20] if took_ms else np.inf
    assert len(took_ms) == count, "the call ended before it was interrupted"
    assert p95 <= MOST_MS, took_ms
    assert (got["late"], got["usable"]) == (0, count)


@tiers("count", [FEW], long=[100])
def test_ctrl_c_while_kernels_are_compiled(count: int) -> None:
    got = in_child(__name__, "interrupt_compiling", count, timeout=HANG_S + 5 * count)
    assert got == {"interrupted": count, "wrong": 0, "right": True}


def test_a_second_interrupt_in_the_wake_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two signals in a row: the arrays are still the helpers' until they are done."""
    stop, again, stopped, ended = team.Team.stop, [True], threading.Event(), threading.Event()

    def stop_interrupted(one: team.Team) -> None:
        stop(one)
        stopped.set()
        if again:
            again.clear()
            raise KeyboardInterrupt

    def kernel(_arguments: int, _scratch: int, _number: int) -> None:
        interrupt([])
        stopped.wait(HANG_S)
        time.sleep(0.1)
        ended.set()

    monkeypatch.setattr(team.Team, "stop", stop_interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.run(kernel, words(3), 64, 1, 100.0)
    before = ended.is_set()
    assert ended.wait(HANG_S)
    assert before


def test_interrupt_main() -> None:
    """As Ctrl-C comes on Windows, or from a thread that asks for it."""
    arguments = words(3)
    told: list[bool] = []

    def kernel(_arguments: int, _scratch: int, _number: int) -> None:
        _thread.interrupt_main()
        give_up = time.perf_counter() + HANG_S
        while not arguments[team.STOP] and time.perf_counter() < give_up:
            time.sleep(1e-3)
        told.append(bool(arguments[team.STOP]))

    with pytest.raises(KeyboardInterrupt):
        pool.run(kernel, arguments, 64, 1, 100.0)
    assert told == [True]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no interval timer")
@pytest.mark.parametrize(
    ("threads", "whose"),
    [(1, "own"), *(pytest.param(2, *one.values, marks=[*one.marks, pytest.mark.long]) for one in POOLS)],
)
def test_a_signal_handler_may_call(threads: int, whose: str) -> None:
    calls = in_child(__name__, "call_from_a_handler", threads, pool=whose)
    assert min(calls) > 10


@pytest.mark.parametrize("whose", POOLS)
@tiers("count", [2], long=[30])
def test_the_interpreter_may_exit_at_any_moment(count: int, whose: str) -> None:
    """With threads in kernels or in the compiler, waited for or not: exit code 0, and atexit handlers may call."""
    step = 10 if count < len(EXITS) else 1  # unlike in every way
    for at in range(count):
        assert in_child(__name__, "leave", *EXITS[at * step % len(EXITS)], pool=whose) is True


@pytest.mark.parametrize("loaded", [False, True])
def test_no_other_thread_calls_llvm_while_the_process_ends(loaded: bool) -> None:
    """Its static objects are destroyed then, also those that a thread that loads it is about to make."""
    assert in_child(__name__, "call_llvm_at_the_end", loaded) == [True, True]

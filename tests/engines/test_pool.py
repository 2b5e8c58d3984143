"""The pool: how many threads run a driver, on which cores, who looks for work, and what calls learn from waiting."""

from __future__ import annotations

import errno
import importlib.util
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import numpy as np
import pytest

from convgrad.engines import pool
from convgrad.engines.addresses import words
from convgrad.engines.llvm.wait import LEAVE
from convgrad.engines.team import Team
from convgrad.host import move_thread, usable_cores
from tests.support.children import HANG_S, Layer

LAYER = Layer((20, 20), (3, 3), (40, 70), batch=4, pad=1)
AFFINITY = hasattr(os, "sched_setaffinity")
several_cores = pytest.mark.skipif(len(usable_cores()) < 2 or not AFFINITY, reason="needs two cores and their masks")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pool._Pool]:
    """A pool of no threads yet, all of whose calls are helped. In the end no thread looks for work.

    A thread that looks takes a core from all later tests.
    """
    made = pool._Pool()
    monkeypatch.setattr(made.patience, "alone", lambda: False)
    monkeypatch.setattr(pool, "MIN_WAKE_MS", 0.0)
    monkeypatch.setattr(pool, "_pool", made)
    yield made
    monkeypatch.setattr(pool, "LOOKS", 1)  # of who begins to look only now
    assert eventually(lambda: all_have_left(made))


def all_have_left(made: pool._Pool) -> bool:
    """Tell threads that look for work to leave; return whether none does."""
    for helper in made.helpers:
        if isinstance(helper, pool._Helper) and helper.looks:  # who was about to begin would not hear it
            helper.words[pool.STATE] = LEAVE
    return made.looking == 0


def eventually(holds: Callable[[], bool]) -> bool:
    give_up = time.perf_counter() + HANG_S
    while not holds() and time.perf_counter() < give_up:
        time.sleep(1e-3)
    return holds()


@pytest.mark.parametrize("time_ms", [1.0, 1000.0], ids=["short", "long"])
@pytest.mark.parametrize(("cores", "asked", "expected"), [(1, 8, 1), (2, 8, 2), (3, 2, 2), (4, 1000, 4)])
def test_no_more_threads_than_cores(
    cores: int, asked: int, expected: int, time_ms: float, fresh: pool._Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "usable_cores", lambda: tuple(range(cores)))
    seen: set[int] = set()
    together = threading.Barrier(expected)

    def kernel(_arguments: int, _scratch: int, _number: int) -> None:
        seen.add(threading.get_ident())
        together.wait(HANG_S)

    pool.run(kernel, words(3), 64, asked, time_ms)
    assert len(seen) == expected
    long = time_ms * asked / expected >= pool.LONG_MS
    assert (threading.get_ident() in seen) == (not long)
    assert len(fresh.helpers) == expected - (not long)


def test_what_is_short_for_many_threads_is_long_for_few(fresh: pool._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that Ctrl-C is heard: the caller waits."""
    monkeypatch.setattr(pool, "usable_cores", lambda: (0,))
    seen: list[int] = []
    pool.run(lambda *_: seen.append(threading.get_ident()), words(3), 64, 8, pool.LONG_MS / 2)
    assert threading.get_ident() not in seen


@pytest.mark.parametrize("threads", [2, 8])
def test_all_but_one_core_are_looked_from(threads: int, fresh: pool._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After calls on more threads than cores, and after long ones, too: a core is left to the caller.

    A helper that ends its work while another is just told to leave does not look: the next call finds one that does.
    """

    def looked_for(call: Callable[[], object]) -> bool:
        def one_looks() -> bool:
            if not fresh.looking:
                call()
            return fresh.looking == 1

        call()
        return eventually(one_looks)

    monkeypatch.setattr(pool, "usable_cores", lambda: tuple(range(threads)))
    LAYER(threads)
    pool.run(lambda *_: None, words(3), 64, threads, 1000.0)
    monkeypatch.setattr(pool, "usable_cores", lambda: (0, 1))
    fresh.place(None)  # who ends its work only now must not look because there were more cores
    assert eventually(lambda: fresh.looking == 0)
    monkeypatch.setattr(pool, "LOOKS", 10**12)  # until it is told to leave
    assert looked_for(lambda: LAYER(2))
    assert looked_for(lambda: pool.run(lambda *_: None, words(3), 64, 2, 1000.0))
    assert all(fresh.looking <= 1 for _ in range(1000))


@several_cores
def test_helpers_keep_off_the_callers_core(fresh: pool._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run on all others that the caller may use; of a long call, whose caller only waits, on all."""
    cores = set(usable_cores())
    monkeypatch.setattr(pool, "usable_cores", lambda: tuple(cores))
    try:
        for core in (*sorted(cores)[:2], *sorted(cores)[:1]):
            os.sched_setaffinity(0, {core})
            team = pool.Team(lambda *_: None, words(3), 64, None)
            fresh.place(core)
            fresh.invite(team, 1, all_needed=False)
            assert [os.sched_getaffinity(helper.thread.native_id) for helper in fresh.helpers] == [cores - {core}]
            assert os.sched_getaffinity(0) == {core}
            team.settle()
        team = pool.Team(lambda *_: None, words(3), 64, None)
        fresh.place(None)
        fresh.invite(team, 2, all_needed=True)
        assert all(os.sched_getaffinity(helper.thread.native_id) == cores for helper in fresh.helpers)
        team.settle()
    finally:
        os.sched_setaffinity(0, cores)


@several_cores
def test_the_callers_cores_are_its_own_business(fresh: pool._Pool) -> None:
    """A call changes no mask but those of the pool; one that may use one core has one thread."""
    cores = set(usable_cores())
    expected = LAYER(1)
    assert np.array_equal(LAYER(2), expected)
    assert os.sched_getaffinity(0) == cores
    helpers = len(fresh.helpers)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert np.array_equal(LAYER(8), expected)
        assert os.sched_getaffinity(0) == {min(cores)}
    finally:
        os.sched_setaffinity(0, cores)
    assert len(fresh.helpers) == helpers == 1


@several_cores
@pytest.mark.parametrize(("number", "passes"), [(errno.ESRCH, True), (errno.EINVAL, True), (errno.EIO, False)])
def test_a_mask_that_the_system_refuses(number: int, passes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core or a thread that is gone is expected; any other error is raised."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with nullcontext() if passes else pytest.raises(OSError, match=os.strerror(number)):
        move_thread(threading.current_thread(), {0})


def test_without_masks(fresh: pool._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems that have none."""
    monkeypatch.setattr(pool, "usable_cores", lambda: (0, 1))
    monkeypatch.setattr(pool, "present_core", lambda: None)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    expected = LAYER(1)
    assert all(np.array_equal(LAYER(2), expected) for _ in range(20))
    assert len(fresh.helpers) == 1


def test_a_long_call_has_threads_beside_others_that_keep_the_pool_busy(
    fresh: pool._Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks into a mailbox may be kept there by another caller for as long as that one likes."""
    monkeypatch.setattr(pool, "usable_cores", lambda: (0, 1))
    monkeypatch.setattr(pool, "LOOKS", 10**12)
    LAYER(2)
    assert eventually(lambda: fresh.looking == 1)
    served = threading.Event()
    long = threading.Thread(target=lambda: pool.run(lambda *_: served.set(), words(3), 64, 1, 1000.0), daemon=True)
    long.start()
    assert served.wait(HANG_S)
    long.join()


def test_invitations_do_not_pile_up(fresh: pool._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Teams that are over may wait in the queue of busy threads: no more than there are threads, and without arrays."""
    monkeypatch.setattr(pool, "usable_cores", lambda: (0, 1))
    go = threading.Event()
    busy = pool.Team(lambda *_: bool(go.wait(HANG_S)), words(3), 64, None)
    fresh.invite(busy, 1, all_needed=False)
    assert eventually(lambda: fresh.idle == 0)
    for _ in range(20):
        pool.run(lambda *_: None, words(3), 64, 2, 1.0, keep=np.zeros(9))
    assert fresh.queue.qsize() <= len(fresh.helpers) == 1
    assert fresh.queue.get().keep is None
    go.set()
    busy.settle()


def test_a_team_that_is_over_keeps_nobody_from_the_next(fresh: pool._Pool) -> None:
    """A helper wakes for one that nobody has joined yet: the next call has it all the same."""
    fresh.helpers.append(object())  # type: ignore[arg-type]  # one that has not come to the queue yet
    over, still_going, following = (Team(lambda *_: None, words(3), 64, None) for _ in range(3))
    for team in (over, still_going):
        assert fresh.invite(team, 1, all_needed=False) == 1
        over.closed = True
    assert fresh.invite(following, 1, all_needed=False) == 0, "a thread has one call at a time"
    still_going.closed = True
    assert fresh.invite(following, 1, all_needed=False) == 1
    assert fresh.queue.get_nowait() is following
    assert fresh.queue.empty()


def test_calls_go_alone_where_helpers_keep_them_waiting() -> None:
    """One that waits is chance; where a third do, most go alone; where none does any more, soon none."""
    patience = pool.Patience()

    def alone(waited_ms: float) -> int:
        patience.learn(waited_ms, 1.0)
        return sum(patience.alone() for _ in range(100))

    assert [alone(0.9) for _ in range(20)] == [0] * 20
    assert alone(1.1) == 0
    assert [alone(0.1) for _ in range(20)] == [0] * 20
    busy = [alone(3.0 if call % 3 == 0 else 0.1) for call in range(60)][30:]
    assert 2 <= min(busy) <= max(busy) <= 8
    assert max([alone(3.0) for _ in range(60)]) == pool.MAX_ALONE - 1
    assert sum(alone(0.1) for _ in range(20)) < 120
    assert alone(0.1) == 0


def test_the_last_call_that_goes_alone_may_be_taken_twice_at_once() -> None:
    """Two threads that both saw one left leave less than none: the next call is helped all the same."""
    patience = pool.Patience()
    patience.left = -1
    assert not patience.alone()


def test_who_waits_gives_way_where_there_is_no_sched_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    monkeypatch.delattr(os, "sched_yield")
    spec = importlib.util.find_spec("convgrad.engines.team")
    assert spec is not None
    assert spec.loader is not None
    team = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(team)
    team._give_way()

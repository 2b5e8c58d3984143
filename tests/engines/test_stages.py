"""Stages that one driver computes in order, or task by task for rows: none begins too early, and no thread waits."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from convgrad.engines.addresses import address_of
from convgrad.engines.llvm import driver, jit
from convgrad.engines.llvm.arguments import loaded_where_used
from convgrad.engines.llvm.elementwise import run, stages
from convgrad.engines.llvm.emit import Module
from convgrad.engines.pools import run as run_on_pool
from convgrad.engines.tensors import Extents, Strided
from convgrad.plan.machine import ISAS, Isa
from convgrad.plan.records import SHARES, Record, addresses
from tests.support.engine_helpers import HOST
from tests.support.helpers import assert_same_bits

ROWS, COLUMNS = 97, 1500  # some rows are one task
DENSE = Strided("f32", 0, COLUMNS * 4)


def chain(isa: str, count: int) -> tuple[run.PreparedStage, ...]:
    """Return maps of which each reads what all tasks of the one before wrote."""
    extents: Extents = (1, ROWS, COLUMNS)
    return tuple([run.map_stage(ISAS[isa], "product", (DENSE, Strided("f32", 0, 0), DENSE), extents)] * count)


def computed(call: run.PreparedDriver, count: int) -> np.ndarray:
    """Return the last of ``count`` arrays, each of which is a product of the array before and of its last row."""
    arrays = [np.full((ROWS, COLUMNS), 2, np.float32), *np.full((count, ROWS, COLUMNS), np.nan, np.float32)]
    addresses: list[int] = []
    for old, new in pairwise(arrays):
        addresses += [address_of(old), address_of(old[-1]), address_of(new)]
    call(addresses, arrays)
    return arrays[-1]


@pytest.mark.parametrize(("isa", "threads"), list(product(HOST, (1, 2, 5))))
def test_a_stage_begins_after_all_tasks_of_the_one_before(isa: str, threads: int) -> None:
    for _ in range(20):
        assert (computed(run.prepared(chain(isa, 5), threads), 5) == 2.0**32).all()


def claiming(isa: Isa) -> str:
    """Return the IR of a driver that lists the numbers that it claims."""
    module, arguments = Module(), addresses("shares", "claimed") + Record("count") + addresses("list")
    f = module.function("driver", public=True, **driver.DRIVER)
    a, place = loaded_where_used(f, f.arguments, arguments), f.alloca("i64", 1)
    f.store(a.list, place)
    with driver.claims(f, a, lambda: a.claimed, lambda: a.count) as number:
        f.store(number, f.load("ptr", place))
        f.store(f.load("i64", place) + 8, place)
    f.done()
    return str(module)


@pytest.mark.parametrize("shares", range(1, SHARES + 1))
def test_a_thread_begins_with_its_share_and_claims_each_number_once(shares: int) -> None:
    (claim,) = jit.functions(ISAS[HOST[0]], claiming, ISAS[HOST[0]], driver=jit.DRIVER)
    for thread, count in product(range(shares + 2), (*range(2 * SHARES + 2), 1000)):
        bounds = [count * n // shares for n in range(shares + 1)]
        wanted = [number for n in range(shares) for number in range(*bounds[(thread + n) % shares :][:2])]
        for claimed in (0, 1):  # of each share that has a number, by another thread
            number_of_shares, counters = np.array([shares]), np.full(SHARES, claimed)
            numbers = np.full(count + 1, -1)
            arguments = np.array(
                [address_of(number_of_shares), address_of(counters), count, address_of(numbers)], np.int64
            )
            claim(address_of(arguments), 0, thread)
            left = [number for number in wanted if not claimed or number not in bounds]
            assert numbers.tolist() == [*left, *[-1] * (count + 1 - len(left))]


def test_threads_that_leave_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that looks once leaves the driver, and the one with the last task computes the following stages."""
    parts = chain(HOST[0], 4)
    monkeypatch.setattr(driver, "LOOKS", 0)
    text = stages.module_of(tuple([stage.spec for stage in parts]), by_rows=False)
    assert "looks, 0" in text
    (impatient,) = jit.functions(ISAS[HOST[0]], lambda: text, driver=jit.DRIVER)
    monkeypatch.setattr(run, "_driver", lambda *_: impatient)
    call = run.PreparedDriver(parts, 3, by_rows=False)
    for _ in range(50):
        assert (computed(call, 4) == 2.0**16).all()


def test_a_stopped_call_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks count as finished, and none is computed."""

    def stopped(kernel: object, arguments: list[int], *others: object) -> None:
        arguments[-1] = 1
        run_on_pool(kernel, arguments, *others)

    monkeypatch.setattr("convgrad.engines.llvm.execute.pools.run", stopped)
    assert np.isnan(computed(run.PreparedDriver(chain(HOST[0], 3), 2, by_rows=False), 3)).all()


@pytest.mark.parametrize(("isa", "rows"), list(product(HOST, (1, 2, 130, 131, 1000))))
def test_tasks_of_rows_have_the_bits_of_stages_in_order(isa: str, rows: int) -> None:
    rng = np.random.default_rng(5)
    x, factors = rng.standard_normal((rows, 126), np.float32), rng.standard_normal(rows).astype(np.float32)
    dense, vector = Strided("f32", 0, 126 * 4), Strided("f32", 0, 0)
    found = []
    for by_rows in (False, True):
        squares, result = np.full(rows, np.nan, np.float32), np.full_like(x, np.nan)
        columns = 16384 // 126 if by_rows else 16384
        parts = (
            run.map_stage(ISAS[isa], "product", (vector, vector, vector), (1, 1, rows), columns),
            run.map_stage(ISAS[isa], "product", (dense, Strided("", 0, 4), dense), (1, rows, 126)),
        )
        addresses = [*map(address_of, (factors, factors, squares, x, squares, result))]
        run.PreparedDriver(parts, 3, len(parts) * by_rows)(addresses, (x, factors))
        found.append(result)
    assert_same_bits(*found, rows)
    assert_same_bits(found[0], x * (factors * factors)[:, None], rows)

"""One problem, one SHA-256: for every number of threads, instruction set, layout, cache size and way of cutting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines import pool
from convgrad.engines.llvm import isas
from convgrad.engines.llvm.execute import executable
from convgrad.formats import FORMATS
from convgrad.notation import problem
from convgrad.plan.backward_weights.schedule import TASK
from convgrad.plan.machine import ISAS
from convgrad.spec.geometry import Conv
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.support.classes import ALL_TYPES, CLASSES, draw, line_of
from tests.support.engine_helpers import HOST, SMALL, Array, digest, empty, lying, plans_for, run_plan
from tests.support.hash_problems import values
from tests.support.tiers import tiers

pytestmark = pytest.mark.usefixtures("eight_cores")  # so many threads run

CHANNELS = [1, 3, 8, 13, 16, 24, 31, 32, 48, 64, 67, 96, 128, 130]
THREADS = range(1, 9)
SMALL_CACHE = 1 << 14  # makes many chunks
ELEMENTS = 1 << 20  # the most of an operand
LARGE = 24_000_000  # multiply-adds; from about 3 million on, calls are cut for threads
QUICK, LONG = range(1), range(1, 43)  # chunks of 5 problems that share types and channels, and so kernels

SHAPES = [
    "mb5ic67ih13oc70oh13kh3ph1",  # packed images
    "mb2ic64ih24oc64oh24kh3ph1",
    "mb2ic48ih30oc130oh30kh1ph0",
    "mb3ic3ih40oc64oh20kh7sh2ph3",
    "g4mb2ic32ih20oc64oh10kh3sh2ph1",
]


def random_conv(rng: np.random.Generator, channels: list[int], least: int) -> Conv:
    """Return a dense layer that a line can say, of ``least`` to LARGE multiply-adds."""
    row = replace(CLASSES["dense"], inner=channels, outer=channels, axes=(1, 2, 2, 3))
    return next(conv for conv in draw(row, rng, LARGE, least, ELEMENTS) if conv.multiply_adds >= least)


@dataclass(frozen=True)
class Hashes:
    """What one problem gave: digests by how it was run, and how it was cut."""

    words: str
    digests: dict[tuple[object, ...], str]
    tasks: tuple[int, ...]
    chunks: tuple[int, ...]
    threads: frozenset[int]  # that plans were cut for


def hashes_of(conv: Conv, fmt: str, output: str, accumulate: bool, seed: int, transposed: bool = False) -> Hashes:
    """Run one problem in every way, each into an output of its own, full of NaN or of the old value."""
    words, digests, tasks, chunks, planned = "", {}, [], [], set()
    for data_format in ("NXC", "NCX"):
        line = line_of(conv, fmt, data_format, transposed)
        words += f"{line} to {output} "
        one = problem(line)
        one = replace(one, output_format=FORMATS[output], accumulate=accumulate)
        exact, bits = one.geometry, np.random.PCG64(seed)
        assert isinstance(exact, Conv)
        assert engines.choose(one).engine == "generated"
        made = [values(s, one.operand_format, bits) for s in (exact.src_shape, exact.dst_shape)]
        given = {"src": made[0], "dst": made[1]}
        operands = [lying(given[t], layout) for t, layout in zip(one.operands, one.layouts, strict=False)]
        lies = [array.strides for array in (*operands, empty(one))]
        old = values(exact.weights_shape, one.output_format, bits)

        def fresh(one: Problem = one, old: Array = old) -> Array:
            out = empty(one)
            if accumulate:
                out[...] = old
            return out

        for isa in HOST:
            host = isas.machine(ISAS[isa])
            for threads in THREADS:
                for machine in (host, replace(host, l2_bytes=SMALL_CACHE)):
                    out = fresh()
                    call = executable(one, lies, machine, threads)
                    call.execute(operands, out)
                    digests[data_format, isa, threads, machine.l2_bytes] = digest(out)
                    tasks.append(call.plan.tasks)
                    planned.add(call.plan.threads)
                    chunks.append(int(call.schedule.tables["tasks"][:, TASK.index("cache_blocks")].max()))
        out = fresh()
        assert engines.execute(one, operands, out, 3).engine == "generated"
        digests[data_format, "as chosen"] = digest(out)
        if exact.multiply_adds < SMALL and data_format == "NXC":
            digests["the specified order"] = digest(evaluate_in_order(one, operands, old))
    return Hashes(words, digests, tuple(tasks), tuple(chunks), frozenset(planned))


def assert_one(found: Hashes) -> None:
    assert len(set(found.digests.values())) == 1, (found.words, found.digests)


_counts = {"problems": 0, "runs": 0, "different bits": 0, "of several tasks": 0, "of several chunks": 0}


@pytest.fixture(scope="module", autouse=True)
def summary() -> Iterator[None]:
    yield
    print(f"\n{_counts}", end="")
    assert _counts["of several chunks"] >= _counts["problems"] // 5


def count_in(found: Hashes) -> None:
    several = len(set(found.digests.values())) - 1
    more = (1, len(found.digests), several, max(found.tasks) > 1, max(found.chunks) > 1)
    for name, n in zip(_counts, more, strict=True):
        _counts[name] += int(n)


def run_chunk(seed: int) -> None:
    """Assert on problems small, middle and large, most of them cut into tasks and chunks."""
    rng, all_found = np.random.default_rng([51, seed]), []
    fmt, output = ALL_TYPES[seed % 5], ALL_TYPES[(seed + seed // 5) % 5]
    channels = rng.choice(CHANNELS, 2, replace=False).tolist()
    for number, least in enumerate((1000, 100_000, 3_000_000, 3_000_000, 3_000_000)):
        conv = random_conv(rng, channels, least)
        found = hashes_of(conv, fmt, output, number == seed % 5, number, transposed=bool(rng.random() < 0.25))
        count_in(found)
        assert_one(found)
        all_found.append(found)
    assert max(max(one.tasks) for one in all_found) >= 4
    assert {min(THREADS), max(THREADS)} <= set().union(*(one.threads for one in all_found))


@pytest.mark.parametrize("seed", QUICK)
def test_one_hash(seed: int) -> None:
    run_chunk(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG)
def test_one_hash_of_200(seed: int) -> None:
    run_chunk(seed)


@tiers("number", range(len(SHAPES)), every=len(SHAPES))
def test_one_hash_of_layers(number: int) -> None:
    conv = problem(f"BWD_W f32 NXC {SHAPES[number]}").geometry
    assert isinstance(conv, Conv)
    found = hashes_of(conv, ALL_TYPES[number % 5], ALL_TYPES[number % 5], False, 7)
    count_in(found)
    assert_one(found)


def test_the_pool_is_used() -> None:
    one = problem("BWD_W f32 NXC mb4ic64ih28oc64oh28kh3ph1")
    conv = one.geometry
    assert isinstance(conv, Conv)
    operands = [np.ones(s, np.float32) for s in (conv.src_shape, conv.dst_shape)]
    plan = plans_for(one, operands, empty(one), ISAS[HOST[0]], 3)[0]
    assert plan.threads == 3
    run_plan(plan, one, operands, empty(one))
    assert pool.size() >= 2

"""One problem, one SHA-256: for every number of threads, instruction set, layout, cache size and way of cutting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines import pool
from convgrad.engines.llvm import isas
from convgrad.engines.llvm.execute import Executable, executable
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.notation import problem
from convgrad.plan.machine import ISAS
from convgrad.plan.split_k.schedule import TASK
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import axis_order
from convgrad.spec.operators import Operator, find
from convgrad.spec.ordered import evaluate_in_order
from tests.engines.runs import assert_bounded, assert_exact, problems_of, run_anyhow
from tests.support.classes import ALL_TYPES, CLASSES, case_of, draw, layouts_of
from tests.support.engine_helpers import HOST, SMALL, digest, empty, lying, made, plans_for, run_plan
from tests.support.hash_problems import values
from tests.support.tiers import tiers

pytestmark = pytest.mark.usefixtures("eight_cores")  # so many threads run

CONV, TRANSPOSE = find("ConvolutionBackwardWeights"), find("ConvTransposeBackwardWeights")
PAIRS = (("f32", "f32"), ("bf16", "f32"), ("f16", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("f32", "bf16"))
CHANNELS = [1, 3, 8, 13, 16, 24, 31, 32, 48, 64, 67, 96, 128, 130]
QUICK_THREADS, THREADS = (1, 2, 3, 5), range(1, 9)
SMALL_CACHE = 1 << 14  # makes many cache blocks
ELEMENTS = 1 << 20  # the most of an operand
CUT, LARGE = 3_500_000, 8_000_000  # multiply-adds: from the first on, calls are cut for threads
DENSE_LARGE = 24_000_000
TERMS = 3000  # of a sum that is executed in the specified order

SHAPES = [
    "mb5ic67ih13oc70oh13kh3ph1",  # packed images
    "mb2ic64ih24oc64oh24kh3ph1",
    "mb2ic48ih30oc130oh30kh1ph0",
    "mb3ic3ih40oc64oh20kh7sh2ph3",
    "g4mb2ic32ih20oc64oh10kh3sh2ph1",
]


@dataclass
class Hashes:
    """What one problem gave: digests by how it was run, and how it was cut with a small cache."""

    digests: dict[tuple[object, ...], str] = field(default_factory=dict)
    tasks: set[int] = field(default_factory=set)
    blocks: set[int] = field(default_factory=set)
    threads: set[int] = field(default_factory=set)  # that plans were cut for

    def count(self, call: Executable) -> None:
        self.tasks.add(call.plan.tasks)
        self.blocks.add(int(call.schedule.tables["tasks"][:, TASK.index("cache_blocks")].max()))
        self.threads.add(call.plan.threads)


def hashes_of(conv: Conv, op: Operator, types: tuple[str, str], accumulate: bool, threads: Sequence[int]) -> Hashes:
    """Run a problem in every way, each into an output of its own, full of NaN or of the old value."""
    (operand, output), bits = (FORMATS[fmt] for fmt in types), np.random.PCG64(sum(conv.weights_shape))
    given = {"src": values(conv.src_shape, operand, bits), "dst": values(conv.dst_shape, operand, bits)}
    old = values(conv.weights_shape, output, bits) if accumulate else None
    found = Hashes()
    for number, layouts in enumerate(layouts_of(op)):
        case = case_of(conv, op, layouts, operand, output)
        order = np.argsort(axis_order(layouts[0], len(conv.src_shape)))
        operands = [
            np.array(shape) if port.is_shape else lying(given[port.tensor], layouts[0]).transpose(order)
            for port, shape in zip(op.operands, case.shapes, strict=True)
        ]
        for isa in HOST:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("CONVGRAD_MAX_ISA", isa)
                prepared = prepare(op.name, tuple(operands), case.attributes, case.dtype, accumulate)
                one = prepared.problem
                choice = engines.choose(one)
                assert (choice.engine, choice.detail) == ("generated", isa), case
                for used in threads if number < 2 else threads[:1]:
                    out = np.full(one.output_shape, np.nan, output.dtype)
                    seen = prepared.canonical_output(out)
                    for small in (False, True):
                        seen[...] = np.nan if old is None else old
                        if small:
                            strides = [array.strides for array in (*prepared.operands, seen)]
                            machine = replace(isas.machine(ISAS[isa]), l2_bytes=SMALL_CACHE)
                            call = executable(one, strides, machine, used)
                            call.execute(prepared.operands, seen)
                            found.count(call)
                        else:
                            prepared.execute(out, used)
                        found.digests[*layouts, isa, used, small] = digest(seen)
        if number == 0 and conv.multiply_adds < SMALL and conv.batch * conv.positions <= TERMS:
            expected = evaluate_in_order(one, prepared.operands, old)
            found.digests["the specified order",] = digest(expected)
    assert len(set(found.digests.values())) == 1, (conv, types, found.digests)
    return found


# -- classes -----------------------------------------------------------------------------------------------------------


def hash_class(name: str, seed: int, counts: tuple[int, int], threads: Sequence[int], types: tuple[str, str]) -> None:
    """Assert on so many small problems, and so many that are cut for threads."""
    few, many = counts
    convs = problems_of(name, seed, few, SMALL - 1) + problems_of(name, seed + 1000, many, LARGE, CUT)
    for number, conv in enumerate(convs):
        hashes_of(conv, TRANSPOSE if number % 4 == 3 else CONV, types, number % 3 == 1, threads)


@tiers("name", list(CLASSES), every=17)
def test_one_hash_of_classes(name: str) -> None:
    hash_class(name, 0, (1, 1), QUICK_THREADS, PAIRS[0])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("name", CLASSES)
def test_one_hash_of_300(name: str, seed: int) -> None:
    hash_class(name, seed, (1, 1), THREADS, PAIRS[seed % len(PAIRS)])


# -- dense layers ------------------------------------------------------------------------------------------------------


def random_conv(rng: np.random.Generator, channels: list[int], least: int) -> Conv:
    """Return a dense layer of ``least`` to DENSE_LARGE multiply-adds."""
    row = replace(CLASSES["dense"], inner=channels, outer=channels, axes=(1, 2, 2, 3))
    return next(conv for conv in draw(row, rng, DENSE_LARGE, least, ELEMENTS) if conv.multiply_adds >= least)


@pytest.mark.long  # the quick tier has layers of all classes
@pytest.mark.parametrize("seed", range(43))
def test_one_hash_of_dense_layers(seed: int) -> None:
    """Small, middle and large ones, which share types and channels; most are cut into tasks and cache blocks."""
    rng, all_found = np.random.default_rng([51, seed]), []
    types = ALL_TYPES[seed % 5], ALL_TYPES[(seed + seed // 5) % 5]
    channels = rng.choice(CHANNELS, 2, replace=False).tolist()
    for number, least in enumerate((1000, 100_000, 3_000_000, 3_000_000, 3_000_000)):
        op = TRANSPOSE if rng.random() < 0.25 else CONV
        all_found.append(hashes_of(random_conv(rng, channels, least), op, types, number == seed % 5, THREADS))
    assert max(max(one.tasks) for one in all_found) >= 4
    assert max(max(one.blocks) for one in all_found) > 1
    assert {min(THREADS), max(THREADS)} <= set().union(*(one.threads for one in all_found))


@tiers("number", range(len(SHAPES)), every=len(SHAPES))
def test_one_hash_of_layers(number: int) -> None:
    conv = problem(f"BWD_W f32 NXC {SHAPES[number]}").geometry
    assert isinstance(conv, Conv)
    hashes_of(conv, CONV, (ALL_TYPES[number], ALL_TYPES[number]), False, THREADS)


LINES = {
    "31x31 depthwise": "g20mb1ic20ih28oc20kh31ph15",
    "a long kernel": "mb1ic2iw400oc3kw300pw150",
    "100,000 terms in a row": "mb1ic1iw100000oc1kw1pw0",
    "100,000 images": "mb100000ic1iw1oc1kw1pw0",
    "10 images of 100 x 100": "mb10ic1ih100oc1kh1ph0",
}
LONG_LINES = {
    "kernel 4096": "mb1ic2iw5000oc3kw4096pw2048",
    "kernel 4096 depthwise": "g16mb1ic16iw4096oc16kw4096pw4095",
    "kernel 4096, stride 7": "mb2ic1iw30000oc4kw4096sw7pw0",
    "a million terms in a row": "mb1ic1iw1000000oc1kw1pw0",
    "a million images": "mb1000000ic1iw1oc1kw1pw0",
    "1000 images of 1000": "mb1000ic1iw1000oc1kw1pw0",
    "a million terms of three channels": "mb1ic3ih1000oc3kh1ph0",
}


@pytest.mark.every(3)
@tiers("name", LINES, long=LONG_LINES)
def test_single_problems(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers, normal numbers, and one hash."""
    conv = problem(f"BWD_W f32 NXC {(LINES | LONG_LINES)[name]}").geometry
    assert isinstance(conv, Conv)
    for number, isa in enumerate(HOST):
        monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
        rng = np.random.default_rng([64, number])
        case = case_of(conv, CONV, layouts_of(CONV)[number % 2], FORMATS["f32"], FORMATS["f32"])
        assert_exact(run_anyhow(case, rng, "integers", isa))
        assert_bounded(run_anyhow(case, rng, "normal", isa))
    hashes_of(conv, CONV, PAIRS[0], False, QUICK_THREADS if name in LINES else THREADS)


def test_the_pool_is_used() -> None:
    one, operands = made("BWD_W f32 NXC mb4ic64ih28oc64oh28kh3ph1")
    plan = plans_for(one, operands, empty(one), ISAS[HOST[0]], 3)[0]
    assert plan.threads == 3
    run_plan(plan, one, operands, empty(one))
    assert pool.size() >= 2

"""Forwards and data gradients that pack all of A before the first task, and that store or pack lines with gaps."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof
from dataclasses import replace

import numpy as np
import pytest

from convgrad.engines import pools, scratch
from convgrad.engines.addresses import address_of
from convgrad.engines.llvm.execute import Executable, executable_of
from convgrad.engines.team import STOP
from convgrad.plan.gemm.spec import GemmPlan
from convgrad.plan.machine import ISAS, Isa
from convgrad.plan.recipe import SPATIAL
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.guarded import CACHE_LINE, CANARY, Guarded, run_guarded
from tests.support.children import HANG_S
from tests.support.engine_helpers import HOST, Array, empty, run_plan
from tests.support.forward_problems import PROBLEMS, plans_of, posed, recut
from tests.support.hash_problems import operands_of, shape_of, values
from tests.support.helpers import assert_same_bits

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


def cuts_of_packed(problem: Problem, operands: list[Array], out: Array, isa: Isa, threads: int = 1) -> list[GemmPlan]:
    """Return plans that pack A, one for each width of micro-tiles, each cut in other ways."""
    view, found = plans_of(problem, operands, out, isa, threads)
    kernels = {
        (plan.spec.nr, plan.spec.k_per_add): plan
        for plan in found
        if type(plan) is GemmPlan and not plan.spec.a.in_place
    }  # fmt: skip
    assert kernels
    cuts = (cut for plan in kernels.values() for cut in recut(plan, view, threads))
    return [cut for cut in cuts if isinstance(cut, GemmPlan)]


def tried(name: str, role: str, types: tuple[str, str], number: int) -> tuple[Problem, list[Array], Array, Array]:
    """Return a problem, its operands, the old values and the expected bits; a number deals the rest."""
    layout = ("NCX OIX", "NCX XIO")[number % 2]
    problem = posed(PROBLEMS[name], role, False, types, layout, number % 3 == 0, bias=number % 2 == 0)
    if number % 5 == 0:
        problem = replace(problem, activation="relu")
    bits = np.random.PCG64(number)
    operands = operands_of(problem, bits)
    old = values(shape_of(problem, problem.output), problem.output_format, bits)
    return problem, operands, old, np.ascontiguousarray(evaluate_in_order(problem, operands, old))


@pytest.mark.parametrize(("line", "element"), [(3, 1), (6, 1), (-6, 1), (0, 1), (0, 0), (7, -1)])
def test_lines_that_overlap(line: int, element: int) -> None:
    """A block's part of a line may end where the next line begins. Parameters are distances in elements."""
    problem = posed(PROBLEMS["dense"], "dst", False, ("f32", "f32"), "NCX OIX")
    operands = operands_of(problem, np.random.PCG64(3))
    memory, shape = np.random.default_rng(3).standard_normal(1000, np.float32), operands[0].shape
    data = np.lib.stride_tricks.as_strided(memory[100:], shape, [4 * n for n in (200, 11, line, element)])
    given = [data, *operands[1:]]
    expected = np.ascontiguousarray(evaluate_in_order(problem, given))
    for plan in cuts_of_packed(problem, given, empty(problem), ISAS[HOST[0]]):
        for once in (False, True) if plan.spec.a.contiguous == SPATIAL else (False,):
            out = empty(problem)
            run_guarded(replace(plan, packed_once=once), problem, given, out, False)
            assert_same_bits(np.ascontiguousarray(out), expected, (str(plan), once))


Call = tuple[Executable, list[Array], Array, Array]  # with operands, an output and the expected bits


@pytest.fixture
def call() -> Call:
    """Return a call on two threads that packs A once."""
    problem, operands, _, expected = tried("300 channels", "src", ("f32", "f32"), 1)
    out = empty(problem)
    plan = cuts_of_packed(problem, operands, out, ISAS[HOST[0]], 2)[1]
    return executable_of(replace(plan, packed_once=True), problem, operands, out), operands, out, expected


@pytest.mark.usefixtures("eight_cores")
def test_two_callers_on_two_threads_each() -> None:
    """Each caller has its own copy of A: their operands differ, and so do the results."""
    made = []
    for number in (1, 7):
        problem, operands, _, expected = tried("300 channels", "dst", ("f32", "f32"), number)
        plans = cuts_of_packed(problem, operands, empty(problem), ISAS[HOST[0]], 2)[1::3]
        made.append((problem, operands, expected, plans))
    together = threading.Barrier(len(made))

    def caller(at: int) -> None:
        problem, operands, expected, plans = made[at]
        for plan in plans:
            together.wait(HANG_S)
            for _ in range(8):
                assert_same_bits(
                    run_plan(replace(plan, packed_once=True), problem, operands, empty(problem)), expected, str(plan)
                )

    with ThreadPoolExecutor(len(made)) as callers:
        for done in [callers.submit(caller, at) for at in range(len(made))]:
            done.result(HANG_S)


def test_memory_that_a_call_needs(call: Call) -> None:
    """It includes the copy of A, which has each element as f32."""
    made, operands, _, _ = call
    copy = operands[0].size * 4
    assert made.schedule.packed_bytes == copy
    assert made.memory_bytes == 2 * made.schedule.scratch_bytes + copy + made.schedule.table_bytes


def test_an_interrupt_while_a_is_packed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output stays as it was, and other threads may still write to the copy: no later call gets its memory."""
    made, operands, out, expected = call
    scratch.shared.give_back(scratch.shared.take(made.schedule.packed_bytes))
    held = scratch.shared.memory
    with monkeypatch.context() as patched:
        patched.setattr(pools, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.execute(operands, out)
    assert np.isnan(out).all()
    assert held is not None
    assert scratch.shared.memory is None
    made.execute(operands, out)
    assert_same_bits(np.ascontiguousarray(out), expected, str(made.plan))


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_stopped_call_packs_nothing(call: Call) -> None:
    made, operands, _, _ = call
    assert made.packing is not None
    packed, own = (Guarded(size, True, CACHE_LINE) for size in (made.schedule.packed_bytes, 64))
    for stopped in (1, 0):
        arguments, _ = made.packing.bound([address_of(array) for array in operands], packed.address, None)
        arguments[STOP] = stopped
        made.packing.kernel(addressof(arguments), own.address, 0)
        assert bool((packed.bytes == CANARY).all()) == bool(stopped)

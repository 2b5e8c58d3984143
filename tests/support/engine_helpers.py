"""Running one plan of the generated engine: on any instruction set this machine has, with NaN around and inside."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from convgrad.engines.llvm import isas
from convgrad.engines.llvm.engine import LlvmCall
from convgrad.engines.llvm.execute import executable_of
from convgrad.engines.llvm.tiles import MODELLED
from convgrad.engines.numpy import NumPyCall
from convgrad.formats import F64
from convgrad.functional.call import Prepared, prepare
from convgrad.notation import problem as problem_of
from convgrad.plan.choose import plans
from convgrad.plan.machine import ISAS, Isa, Machine
from convgrad.plan.recipe import Chosen
from convgrad.plan.split_k.nest import weights_nest
from convgrad.plan.split_k.recipe import SplitKPlan
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import axis_order
from convgrad.spec.problem import Problem, canonical_shapes
from tests.support.classes import WEIGHTS
from tests.support.helpers import Case, operands_of, random_case

Array = NDArray[Any]
SMALL = 200_000  # multiply-adds that the specified order is executed on
HOST = [isa.name for isa in isas.host_isas() if not isa.pairs]  # what differs where there are pairs: test_pairs.py

PERMITTED = any(isa.tiles for isa in isas.host_isas())
WIDE = ("amx",) * PERMITTED
KINDS = (*WIDE, MODELLED)


@functools.cache
def modelled(isa: Isa, pairs: str) -> Isa:
    """Return ``isa`` with the multiply-add ``pairs``, which models the instruction for bf16 pairs on any machine."""
    return replace(isa, name=f"{isa.name}, pairs {pairs}", pairs=pairs)


@functools.cache
def tiled(kind: str) -> Isa:
    """An instruction set with tiles: AMX itself, or vectors of any machine that stand for its instructions."""
    if kind == "amx":
        return ISAS["amx"]
    ours = ISAS[HOST[0]]
    names = {"name": "tiles modelled", "triple": ours.triple, "features": ours.features}
    return replace(ISAS["amx"], **names, pairs="fused", tiles=MODELLED)


def empty(problem: Problem, fill: float = np.nan) -> Array:
    """A canonical view of a new output in the caller's layout."""
    return np.full(problem.output_shape, fill, problem.output_format.dtype).transpose(problem.output_order)


def plans_for(
    problem: Problem, operands: Sequence[Array], out: Array, isa: Isa, threads: int = 1, l2_bytes: int = 1 << 20
) -> list[SplitKPlan]:
    """All plans, the cheapest first; a made-up small cache gives many chunks."""
    assert isinstance(problem.geometry, Conv)
    src, dst = (operands[problem.operands.index(t)] for t in ("src", "dst"))
    seen = weights_nest(problem.geometry, src.strides, dst.strides, out.strides)
    return plans(problem, seen, Machine(isa, l2_bytes=l2_bytes), threads, None)


def run_plan(plan: Chosen, problem: Problem, operands: Sequence[Array], out: Array) -> Array:
    """Execute one plan into a canonical output and return it, its bytes in canonical order."""
    executable_of(plan, problem, operands, out).execute(operands, out)
    return np.ascontiguousarray(out)


def lying(array: Array, layout: str) -> Array:
    """Return canonical values that lie as a layout has them."""
    order = axis_order(layout, array.ndim)
    return np.ascontiguousarray(array.transpose(np.argsort(order))).transpose(order)


def made(line: str, fill: str = "normal", scale: float = 1.0) -> tuple[Problem, list[Array]]:
    """Return a problem and operands that lie as it says: normal numbers, or small integers."""
    one, rng = problem_of(line), np.random.default_rng(len(line))
    operands = []
    for shape, layout in zip(canonical_shapes(one)[:-1], one.layouts, strict=False):
        numbers = rng.standard_normal(shape) * scale if fill == "normal" else rng.integers(-3, 4, shape)
        operands.append(lying(numbers.astype(one.operand_format.dtype), layout))
    return one, operands


def digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@functools.cache
def prepared_weights(seed: int, kind: str = "normal") -> tuple[Case, Prepared]:
    """A random weight gradient small enough for the specified order, that sums something."""
    rng = np.random.default_rng([21, seed])
    while True:
        case = random_case(rng, WEIGHTS[seed % len(WEIGHTS)])
        if case.format is F64:
            continue
        prepared = prepare(case.op.name, operands_of(case, kind, seed), case.attributes, case.dtype)  # type: ignore[arg-type]
        conv = prepared.problem.geometry
        assert isinstance(conv, Conv)
        if conv.batch * conv.positions > 0 and conv.multiply_adds < SMALL:
            return case, prepared


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, list[int]]]:
    """Return a list of the calls that will be computed: what they are, where their operands and their result lie."""
    seen: list[tuple[Any, list[int]]] = []

    def watch(kind: Any) -> None:
        compute = kind.at

        def see(call: Any, operands: list[int], out: int, keep: object) -> None:
            seen.append((call, [*operands, out]))
            compute(call, operands, out, keep)

        monkeypatch.setattr(kind, "at", see)

    watch(LlvmCall)
    watch(NumPyCall)
    return seen

"""Random problems among guard pages; run as a program, so that a fault ends only this process.

``python -m tests.engines.guarded_problems SEED KIND:COUNT...`` names each problem before it runs it, and ends with a
line of what it did of each kind. "beyond" has the engine read an image that is not there.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

import convgrad
from campaigns.winograd import drawn, drawn_wide
from convgrad.engines import scratch as kept_memory
from convgrad.engines.llvm import isas
from convgrad.engines.llvm.winograd.run import tiled
from convgrad.functional.call import prepare
from convgrad.plan.gemm.spec import GemmPlan
from convgrad.plan.machine import Isa, Machine
from convgrad.spec import exact_result
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import axis_order, from_canonical
from convgrad.spec.problem import Problem
from tests.engines.guarded import Array, GuardedMemory, Placed, Scratch, lying, run_guarded
from tests.support.classes import ALL_TYPES, CLASSES, NAMES, draw, layer_case
from tests.support.forward_problems import LIES, MIXED, PROBLEMS, ROLES, plans_of, posed, recut, unlike
from tests.support.functions import share_functions
from tests.support.hash_problems import shape_of
from tests.support.helpers import assert_same_bits, operands_of

DATA_NAMES = (*PROBLEMS, *CLASSES)
MULTIPLY_ADDS, ELEMENTS = 300_000, 20_000
Done = Counter[str]


@dataclass(frozen=True)
class Posed:
    """A problem: its operands and last what its output holds before, how it is run on such arrays, its result."""

    words: str
    arrays: list[Array]
    run: Callable[[list[Array], bool, str], Array]  # arrays, whether the page behind is guarded, words; prints these
    expected: Array
    counted: dict[str, int]


def values_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, accumulate: bool) -> Array:
    """Return what an output holds before: integers to add to, or NaN."""
    return rng.integers(-8, 9, shape).astype(dtype) if accumulate else np.full(shape, np.nan, dtype)


def gradient(rng: np.random.Generator, name: str, operand: str, output: str) -> Posed:
    """Return a random weight or bias gradient of a class."""
    case, seed = layer_case(name, rng, operand, output), int(rng.integers(1 << 30))
    plain = operands_of(case, "integers", seed)
    accumulate, threads = bool(rng.random() < 0.3), int(rng.choice([1, 1, 2]))
    prepared = prepare(case.op.name, plain, case.attributes, case.dtype, accumulate)
    problem = prepared.problem
    old = values_of(rng, problem.output_shape, problem.output_format.dtype, accumulate)
    answer = exact_result.evaluate(problem, prepared.operands, prepared.canonical_output(old) if accumulate else None)
    shapes = [port.is_shape for port in case.op.operands[: len(plain)]]

    def run(placed: list[Array], _: bool, words: str) -> Array:
        print(words, flush=True)
        each, out = iter(placed), placed[-1]
        operands = [a if is_shape else next(each) for a, is_shape in zip(plain, shapes, strict=True)]
        options: dict[str, Any] = {"dtype": case.dtype, "out": out, "accumulate": accumulate, "threads": threads}
        convgrad.run(case.op.name, *operands, **options, **case.attributes)
        return prepared.canonical_output(out)

    arrays = [np.asarray(a) for a, is_shape in zip(plain, shapes, strict=True) if not is_shape]
    words = f"{name}: {case} seed {seed} accumulate {accumulate} threads {threads}"
    return Posed(words, [*arrays, old], run, answer.rounded(problem), {name: 1, "accumulated": accumulate})


def conv_of(name: str, rng: np.random.Generator) -> Conv:
    """Return a problem of the table, or a random one of a class."""
    if name in PROBLEMS:
        return PROBLEMS[name]
    found = draw(CLASSES[name], rng, MULTIPLY_ADDS, most_elements=ELEMENTS)
    return next(conv for conv in found if prod(conv.weights_shape) <= ELEMENTS)


def canonical(arrays: list[Array], problem: Problem) -> list[Array]:
    """Return the canonical views of operands and output; a bias is as it lies."""
    pairs = zip(arrays, problem.layouts, strict=True)
    return [a if a.ndim == 1 else a.transpose(axis_order(layout, a.ndim)) for a, layout in pairs]


def made(problem: Problem, rng: np.random.Generator) -> list[Array]:
    """Return operands of small integers, and last the value before, all in the problem's layouts."""
    arrays = []
    for tensor, layout in zip((*problem.operands, problem.output), problem.layouts, strict=True):
        shape = shape_of(problem, tensor)
        lies = shape if len(shape) == 1 else from_canonical(shape, layout)
        arrays.append(rng.integers(-4, 5, lies).astype(problem.operand_format.dtype))
    old = values_of(rng, arrays[-1].shape, problem.output_format.dtype, problem.accumulate)
    return [*arrays[:-1], old]


def counted(problem: Problem) -> dict[str, int]:
    kinds = {problem.operator: 1, problem.solves_for: 1}
    return {"accumulated": problem.accumulate, "with bias": "bias" in problem.operands} | kinds


def data(rng: np.random.Generator, name: str, seed: int, isa: Isa) -> Posed:
    """Return a forward or a data gradient, run by a plan cut anyhow."""
    role, lies = ROLES[int(rng.integers(2))], LIES[(seed + int(rng.integers(2))) % 4]
    types = MIXED[seed // 2 % len(MIXED)] if seed % 2 else MIXED[0]
    transposed, accumulate = bool(rng.integers(2)), bool(rng.random() < 0.25)
    problem = posed(conv_of(name, rng), role, transposed, types, lies, accumulate, bias=True)
    arrays = made(problem, rng)
    *operands, old = canonical(arrays, problem)
    answer = exact_result.evaluate(problem, operands, old if accumulate else None)
    assert answer.magnitude.max(initial=0) <= 2**24
    count: dict[str, int] = Counter(counted(problem))

    def run(placed: list[Array], at_end: bool, words: str) -> Array:
        *operands, out = canonical(placed, problem)
        view, found = plans_of(problem, operands, out, isa, l2_bytes=1 << int(rng.integers(12, 21)))
        kinds = unlike(found, seed)
        plan = kinds[int(rng.integers(len(kinds)))]
        cuts = [plan, *recut(plan, view)]
        plan = cuts[int(rng.integers(10)) % len(cuts)]
        print(words, plan.summary, plan.cut, flush=True)
        run_guarded(plan, problem, operands, out, at_end)
        if isinstance(plan, GemmPlan):
            count["a in place"] += plan.spec.a.in_place
            count["b in place"] += plan.spec.b.in_place
            count["bias per row"] += plan.spec.bias_per_row
        count[plan.spec.body] += 1
        return out

    return Posed(f"{name} {problem}", arrays, run, np.ascontiguousarray(answer.rounded(problem)), count)


def in_tiles(rng: np.random.Generator, isa: Isa) -> Posed:
    """Return a problem that Winograd computes; its result is that in ordinary memory."""
    one = drawn_wide(rng) if rng.integers(3) == 0 else drawn(rng, 9)
    problem, threads = replace(one, accumulate=bool(rng.random() < 0.25)), int(rng.integers(1, 3))
    if bool(rng.integers(2)) and problem.solves_for != "weights":
        operands = (*problem.operands, "bias")
        problem = replace(problem, operands=operands, layouts=(*problem.layouts[:-1], "NCX", problem.layouts[-1]))
    machine, arrays = Machine(isa, l2_bytes=1 << int(rng.integers(16, 21))), made(problem, rng)

    def run(placed: list[Array], _: bool, words: str) -> Array:
        print(words, flush=True)
        *given, out = canonical(placed, problem)
        tiled(problem, (*[each.strides for each in given], out.strides), machine, threads).execute(given, out)
        return out

    words = f"{problem} threads {threads}"
    expected = np.ascontiguousarray(run([*arrays[:-1], arrays[-1].copy()], True, words))
    return Posed(words, arrays, run, expected, counted(problem))


def run_one(rng: np.random.Generator, one: Posed, done: Done) -> None:
    """Run a problem in both placements, all memory that it takes guarded, and compare with its result."""
    strided = [bool(rng.random() < 0.3) for _ in one.arrays]
    strides = [lying(rng, array, odd) for array, odd in zip(one.arrays, strided, strict=True)]
    for at_end in (True, False):
        words = f"{one.words} strides {strides} guard {'behind' if at_end else 'before'}"
        placed = [Placed(array, s, at_end) for array, s in zip(one.arrays, strides, strict=True)]
        taken = GuardedMemory(at_end)
        kept_memory.own = kept_memory.shared = taken  # type: ignore[assignment]
        got = one.run([each.array for each in placed], at_end, words)
        assert_same_bits(np.ascontiguousarray(got), one.expected, words)
        for now, before in zip(placed[:-1], one.arrays[:-1], strict=True):
            assert now.array.tobytes() == before.tobytes(), f"an operand changed: {words}"
        assert all(each.intact() for each in placed), f"bytes around an array changed: {words}"
        assert all(each.intact() for each in taken.given), f"bytes around scratch changed: {words}"
        done["placements"] += 1
        done["scratch"] += len(taken.given)
    done.update(one.counted)
    done.update({"problems": 1, "strided": any(strided)})


def reach_beyond() -> None:
    """Have the engine read an image that is not there."""
    print("an image too many", flush=True)
    placed = Placed(np.ones((1, 9, 9, 16), np.float32), (16 * 81 * 4, 16 * 9 * 4, 64, 4), at_end=True)
    too_many = np.lib.stride_tricks.as_strided(placed.array, (2, 9, 9, 16))
    convgrad.convolution_backward_weights(too_many, np.ones((2, 9, 9, 16), np.float32), (1, 1, 16, 16), threads=1)


def run_kind(kind: str, seed: int, count: int) -> Done:
    """Run problems of a kind; return what was done."""
    if kind == "beyond":
        reach_beyond()
    done, isa = Counter[str](), isas.isa()
    assert isa is not None
    for number in range(count):
        rng = np.random.default_rng([71, seed, number])
        turn = number + seed * count
        if kind == "gradients":
            types = ALL_TYPES[seed % 5], ALL_TYPES[(seed + seed // 5) % 5]
            one = gradient(rng, NAMES[turn % len(NAMES)], *types)
        elif kind == "data":
            one = data(rng, DATA_NAMES[turn % len(DATA_NAMES)], seed, isa)
        else:
            one = in_tiles(rng, isa)
        run_one(rng, one, done)
    return done


if __name__ == "__main__":
    share_functions()
    faulthandler.enable()
    Scratch.place_all()
    asked = [argument.split(":") for argument in sys.argv[2:]]
    print(json.dumps({kind: run_kind(kind, int(sys.argv[1]), int(count)) for kind, count in asked}))

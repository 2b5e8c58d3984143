"""The table of the generated engine's passes. Functions return the loop nest, plan and schedule of a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from convgrad.plan import choose
from convgrad.plan.forward_nest import ForwardNest, forward_nest
from convgrad.plan.kernels import FAMILIES, Nest
from convgrad.plan.machine import Machine
from convgrad.plan.reach import conv_of
from convgrad.plan.recipe import Chosen, Spec
from convgrad.plan.records import Record
from convgrad.plan.split_k.nest import WeightsNest, weights_nest
from convgrad.plan.tables import Schedule, Strides
from convgrad.plan.winograd.plans import PositionsPlan, WeightsPlan, WinogradPlan, plan_positions, plan_weights
from convgrad.spec.layouts import axis_order, from_canonical
from convgrad.spec.operators import Tensor
from convgrad.spec.order import order_of
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.work import moved_bytes

ONES = "ones"  # the name of an operand whose elements are all 1


@dataclass(frozen=True)
class Pass:
    """A pass: the problem's operand for each tensor of the convolution, its loop nest, and its plan for Winograd."""

    solves_for: str
    operands: Mapping[str, str]
    view: Callable[[Problem, Mapping[str, Strides], Strides], Any]
    winograd: Callable[[Problem, Machine, int], PositionsPlan | WeightsPlan] | None = None


def _weights_view(problem: Problem, strides_of: Mapping[str, Strides], out: Strides) -> WeightsNest:
    """Return the loop nest of a weight or bias gradient. Operands named ``ONES`` have strides of 0."""
    conv, names = conv_of(problem), PASSES[problem.solves_for].operands
    rank, size = 2 + len(conv.axes), problem.operand_format.itemsize
    src, dst = (
        (0,) * rank if names[tensor] == ONES else _padded(strides_of[names[tensor]], rank, size)
        for tensor in ("src", "dst")
    )
    return weights_nest(conv, src, dst, _padded(out, rank, problem.output_format.itemsize))


def _forward_view(problem: Problem, strides_of: Mapping[str, Strides], out: Strides) -> ForwardNest:
    return forward_nest(conv_of(problem), order_of(problem), problem.solves_for, strides_of, out)


def _padded(strides: tuple[int, ...], rank: int, size: int) -> tuple[int, ...]:
    """Return strides extended to the rank of a convolution. The added axes have one element."""
    return strides + (size,) * (rank - len(strides))


PASSES = {
    row.solves_for: row
    for row in (
        Pass("weights", {"src": "src", "dst": "dst"}, _weights_view, plan_weights),
        # A bias gradient is computed as a weight gradient with one tap and one src channel of ones, because 1 * y = y.
        Pass("bias", {"src": ONES, "dst": "dst"}, _weights_view),
        Pass("dst", {"src": "src", "weights": "weights"}, _forward_view, plan_positions),
        Pass("src", {"dst": "dst", "weights": "weights"}, _forward_view, plan_positions),
    )
}


def view_of(problem: Problem, operands: Sequence[Strides], out: Strides) -> Any:
    """Return the loop nest of a problem for operands and output with canonical axes; strides are in bytes."""
    strides_of: dict[str, Strides] = dict(zip(problem.operands, operands, strict=True))
    return PASSES[problem.solves_for].view(problem, strides_of, out)


def dense_strides(problem: Problem) -> tuple[Strides, ...]:
    """Return the strides in bytes of the operands and, last, of the output, if all are dense and row-major."""
    size, output_size = problem.operand_format.itemsize, problem.output_format.itemsize

    def strides(tensor: Tensor, layout: str, bytes_each: int) -> Strides:
        return (
            (bytes_each,) if tensor == "bias" else dense(canonical_shape(problem.geometry, tensor), layout, bytes_each)
        )

    *layouts, last = problem.layouts
    operands = [strides(tensor, layout, size) for tensor, layout in zip(problem.operands, layouts, strict=True)]
    return (*operands, strides(problem.output, last, output_size))


def dense_view(problem: Problem) -> Any:
    """Return the loop nest of a problem whose arrays are dense and row-major in their layouts."""
    *operands, out = dense_strides(problem)
    return view_of(problem, operands, out)


def plan(problem: Problem, view: Nest, machine: Machine, threads: int) -> Chosen:
    """Return the plan with the least predicted time for a problem and its loop nest."""
    if problem.algorithm:
        return winograd_plan(problem, machine.for_traffic(moved_bytes(problem)), threads)
    return choose.plan(problem, view, machine, threads)


def winograd_plan(problem: Problem, machine: Machine, threads: int) -> PositionsPlan | WeightsPlan:
    """Return the plan of a problem whose algorithm is Winograd's."""
    planner = PASSES[problem.solves_for].winograd
    assert planner is not None, "Winograd computes this pass"
    return planner(problem, machine, threads)


plans = choose.plans


def dense_plan(problem: Problem, machine: Machine, threads: int) -> Chosen:
    """Return the plan with the least predicted time if arrays are dense and row-major in their layouts."""
    return plan(problem, dense_view(problem), machine, threads)


def scratch_bytes(problem: Problem, chosen: Chosen) -> int:
    """Return the bytes of scratch of all threads under a plan, if arrays are dense and row-major in their layouts."""
    if isinstance(chosen, WinogradPlan):
        return chosen.scratch_bytes
    return tables(problem, dense_view(problem), chosen).scratch_bytes * chosen.threads


def tables(problem: Problem, view: Nest, chosen: Chosen) -> Schedule:
    """Return the tables and numbers that the compiled driver reads for a plan."""
    family = FAMILIES[chosen.spec.body]
    return family.schedule(family.nest(view), chosen, problem.accumulate)


def arguments_of(spec: Spec) -> Record:
    """Return the record of the arguments that a kernel's driver reads."""
    return FAMILIES[spec.body].arguments(spec)


def dense(shape: Sequence[int], layout: str, size: int) -> tuple[int, ...]:
    """Return the strides of canonical axes in bytes, for a dense row-major array in a layout."""
    extents = from_canonical(shape, layout)
    steps = [size * prod(extents[axis + 1 :]) for axis in range(len(extents))]
    return tuple(steps[axis] for axis in axis_order(layout, len(extents)))

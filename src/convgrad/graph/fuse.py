"""Fusion of ops: the call that computes a result also computes a BiasAdd or ReLU, if no other op reads the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from convgrad.formats import F8_E4M3, F32, Format
from convgrad.graph.model import RELU, Op, operator_of
from convgrad.graph.resolve import Resolved
from convgrad.spec.activation import activates
from convgrad.spec.geometry import Conv

Chain = tuple[Op, ...]  # each op reads the output of the previous op


@dataclass(frozen=True)
class FusedOps:
    """Ops that one call computes, and the op that describes this call.

    ``resolved`` is None for a ReLU, an unsupported op or an unknown shape. ``released`` are tensors that no later step
    reads.
    """

    ops: Chain
    op: Op
    resolved: Resolved | None
    released: tuple[int, ...] = ()


def called(ops: Chain) -> Op:
    """Return the op that describes the call of a chain of ops, without the activation, which is ``activation_of``."""
    if len(ops) == 1:
        return ops[0]
    biases = (tensor for op in ops[1:] for tensor in op.inputs[1:])
    return replace(ops[0], inputs=(*ops[0].inputs, *biases), outputs=ops[-1].outputs)


def has_fused_bias(ops: Chain) -> bool:
    """Return whether the call that computes a chain of ops adds the bias of a BiasAdd."""
    return any(operator_of(op) is not RELU for op in ops[1:])


def keeps_bits(ops: Chain, fmt: Format) -> bool:
    """Return whether one call gives the same bits as a chain of ops one after another, in their number format.

    A BiasAdd needs f32, because ops of other formats round their result before the bias is added. ReLU commutes with
    rounding, which keeps order and sign, except in f8_e4m3: it has no infinity, so a result below its range is NaN.
    """
    return not (has_fused_bias(ops) and fmt is not F32) and not (activation_of(ops) and fmt is F8_E4M3)


def activation_of(ops: Chain) -> str | None:
    """Return the activation of the call that computes a chain of ops, or None without activation."""
    return "relu" if len(ops) > 1 and operator_of(ops[-1]) is RELU else None


def chains(
    order: Sequence[Op], resolved: Mapping[int, Resolved], reasons: Collection[int], kept: Collection[int]
) -> tuple[Chain, ...]:
    """Return the ops as chains, in running order. A tensor of ``kept`` is always the output of a chain.

    A chain gives the same bits as its ops one after another.
    """
    reads = Counter(tensor.id for op in order for tensor in op.inputs)
    chain_of: dict[int, Chain] = {}  # by output id; -1 - number if an op has no output
    for number, op in enumerate(order):
        first = op.inputs[0].id if op.inputs else -1
        before = chain_of.get(first, ())
        fits = before and reads[first] == 1 and first not in kept and op.id not in reasons
        chain = (*chain_of.pop(first), op) if fits and _fuses(before, op, resolved) else (op,)
        chain_of[op.outputs[0].id if op.outputs else -1 - number] = chain
    return tuple(chain_of.values())


def _fuses(before: Chain, op: Op, resolved: Mapping[int, Resolved]) -> bool:
    first, row = operator_of(before[0]), operator_of(op)
    if first is None or row is None or not activates(first.name) or before[0].id not in resolved:
        return False
    problem, add = resolved[before[0].id].problem, resolved.get(op.id)
    if not keeps_bits((*before, op), problem.output_format):
        return False
    if row is RELU:
        return True
    return (
        row.solves_for == "bias_add"
        and add is not None
        and len(before) == 1
        and isinstance(problem.geometry, Conv)
        and "bias" not in problem.operands
        and add.problem.layouts[-1] == problem.layouts[-1]
    )

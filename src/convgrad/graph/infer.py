"""Inference over a whole graph: the producer of each tensor, a running order of the ops, and every shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from convgrad.cached import cached_property
from convgrad.errors import GraphError
from convgrad.graph.fuse import FusedOps, called, chains, has_fused_bias
from convgrad.graph.given import given_to
from convgrad.graph.model import RELU, LogicalTensor, Op, operator_of
from convgrad.graph.resolve import Posed, Resolved, check_kind, check_ports, rectified, resolve, unsupported


@dataclass(frozen=True)
class Inference:
    """The ops in running order, all tensors by id, and facts about each op by op id.

    ``resolved`` has the calls of ops, and ``reasons`` has the reasons why ops cannot run. ``steps`` has the same ops as
    ``order``; fused ops are one step. ``released`` has the inputs and outputs of each op that no later op reads.
    ``computed`` has the tensors that cannot be given: the outputs of supported ops except ReLU.
    """

    order: tuple[Op, ...]
    tensors: Mapping[int, LogicalTensor]
    resolved: Mapping[int, Resolved]
    reasons: Mapping[int, str]
    steps: tuple[FusedOps, ...]
    released: Mapping[int, tuple[int, ...]]
    computed: frozenset[int]

    @cached_property
    def fused(self) -> dict[int, Op]:
        """The op whose call computes each fused op, by the id of the fused op."""
        return {op.id: step.ops[0] for step in self.steps for op in step.ops[1:]}


def infer(ops: Sequence[Op], values: Mapping[int, object], kept: Collection[int] = ()) -> Inference:
    """Check a whole graph and infer every shape from it and from arrays by tensor id, or raise GraphError.

    Tensors of ``kept`` are always stored: no op that reads one is fused into the call that makes it.
    """
    if not ops:
        raise GraphError("a graph must have at least one op; got none")
    tensors = tensors_of(ops)
    order = in_order(ops)
    resolved: dict[int, Resolved] = {}
    reasons: dict[int, str] = {}
    posed: Posed = {}
    for op in order:
        row = operator_of(op)
        check_kind(op)
        if row is not None:
            check_ports(op, row)
        reason = unsupported(op, row)
        if row is None or reason is not None:
            reasons[op.id] = reason or ""
            continue
        inputs = given_to(op, row, tensors, values)
        tensors |= inputs.tensors
        if row is RELU:
            tensors[op.outputs[0].id] = rectified(op, tensors)
            continue
        call = resolve(op, row, tensors, inputs.shapes, posed)
        if call is not None:
            resolved[op.id] = call
            tensors[op.outputs[0].id] = call.output(tensors[op.outputs[0].id])
    fused = [(chain, called(chain)) for chain in chains(order, resolved, reasons, kept)]
    last = released_after([op for _, op in fused])
    steps: list[FusedOps] = []
    for chain, op in fused:
        call, row = resolved.get(op.id), operator_of(op)
        if row is not None and has_fused_bias(chain):
            call = resolve(op, row, tensors, {}, posed)
        steps.append(FusedOps(chain, op, call, last[op.id]))
    computed = frozenset(
        tensor.id for op in order if op.id not in reasons and operator_of(op) is not RELU for tensor in op.outputs
    )
    return Inference(order, tensors, resolved, reasons, tuple(steps), released_after(order), computed)


def tensors_of(ops: Sequence[Op]) -> dict[int, LogicalTensor]:
    """Return every tensor by id; raise GraphError if one id has two descriptions, or one name has two ids."""
    tensors: dict[int, LogicalTensor] = {}
    names: dict[str, int] = {}
    for op in ops:
        for tensor in (*op.inputs, *op.outputs):
            known = tensors.setdefault(tensor.id, tensor)
            if tensor.name and names.setdefault(tensor.name, tensor.id) != tensor.id:
                raise op.refuse(f"a name must be of one tensor; {tensor.label} shares it with {names[tensor.name]}")
            if known is not tensor and known != tensor:
                differing = [
                    f"{name} {getattr(tensor, name)} and {getattr(known, name)}"
                    for name in tensor.__dataclass_fields__
                    if getattr(tensor, name) != getattr(known, name)
                ]
                raise op.refuse(f"tensor {tensor.id} must have one description; got {', '.join(differing)}")
    return tensors


def producers_of(ops: Sequence[Op]) -> dict[int, Op]:
    """Return the op that makes each tensor, by tensor id; raise GraphError if two ops make one tensor."""
    producers: dict[int, Op] = {}
    for op in ops:
        for tensor in op.outputs:
            if tensor.id in producers:
                raise op.refuse(f"a tensor must have one producer; {producers[tensor.id].label} makes {tensor.id} too")
            producers[tensor.id] = op
    return producers


def inputs_of(ops: Sequence[Op]) -> tuple[int, ...]:
    """Return the ids of the tensors that ops read and no op makes, in order of first use."""
    producers = producers_of(ops)
    return tuple(dict.fromkeys(tensor.id for op in ops for tensor in op.inputs if tensor.id not in producers))


def in_order(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Return the ops in an order in which each op follows the producers of its inputs; raise GraphError for a cycle.

    The depth-first search has its own stack, because a graph can be deeper than Python's stack.
    """
    producers = producers_of(ops)
    placed: dict[int, Op] = {}
    for root in ops:
        if root.id in placed:
            continue
        begun = {root.id: root}  # each op reads an output of the next op
        stack = [(root, iter(root.inputs))]
        while stack:
            op, inputs = stack[-1]
            before = next((producers[t.id] for t in inputs if _waits(t.id, producers, placed)), None)
            if before is None:
                placed[op.id] = op
                begun.pop(op.id)
                stack.pop()
            elif before.id in begun:
                names = ", ".join(waiting.label for waiting in list(begun.values())[:5])
                raise op.refuse(f"a graph must have no cycles; ops that wait for each other are among {names}")
            else:
                begun[before.id] = before
                stack.append((before, iter(before.inputs)))
    return tuple(placed.values())


def _waits(tensor: int, producers: Mapping[int, Op], placed: Mapping[int, Op]) -> bool:
    return tensor in producers and producers[tensor].id not in placed


def released_after(order: Sequence[Op]) -> dict[int, tuple[int, ...]]:
    """Return, by op id, those inputs and outputs of the op that no later op reads."""
    read: set[int] = set()
    released = {}
    for op in reversed(order):
        touched = dict.fromkeys(tensor.id for tensor in (*op.inputs, *op.outputs))
        released[op.id] = tuple(tensor for tensor in touched if tensor not in read)
        read |= {tensor.id for tensor in op.inputs}
    return released

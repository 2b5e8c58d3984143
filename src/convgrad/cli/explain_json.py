"""The values of ``convgrad explain --json``, for a graph and for a call."""

from __future__ import annotations

from convgrad.functional.explain import Explanation
from convgrad.functional.in_words import formula, norms, shapes_by_name
from convgrad.graph.explain import peak_bytes
from convgrad.graph.graph import Graph
from convgrad.graph.model import Op
from convgrad.plan.recipe import Chosen
from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.order import height_of
from convgrad.spec.work import moved_bytes, needed_flops


def of_call(explanation: Explanation) -> dict[str, object]:
    """Return the values that describe how a call would be computed.

    ``plan`` is None for the NumPy engine. ``multiply_adds`` is None for a bias operator.
    """
    problem, geometry = explanation.problem, explanation.problem.geometry
    *operands, (name, result_shape) = shapes_by_name(problem).items()
    return {
        "operator": problem.operator,
        "type": problem.operand_format.name,
        "operands": {operand: list(shape) for operand, shape in operands},
        "result": {"name": name, "shape": list(result_shape), "type": problem.output_format.name},
        "formula": formula(problem),
        "multiply_adds": _multiply_adds(geometry),
        "multiply_adds_without_padding": needed_flops(geometry) // 2 if isinstance(geometry, Conv) else None,
        "moved_bytes": moved_bytes(problem),
        "engine": explanation.choice.engine,
        "engine_reason": explanation.choice.reason,
        "height": explanation.height,
        "variant": problem.algorithm or "direct",
        "why_direct": explanation.why_direct,
        "error_factor": explanation.error_factor,
        "error_factor_of": norms(problem) if problem.algorithm else "sum |x||y|",
        "leaf_images": explanation.leaf_images,
        "chunk_images": explanation.chunk_images,
        "scratch_bytes": explanation.scratch_bytes,
        "plan": None if explanation.plan is None else _plan(explanation.plan),
    }


def _multiply_adds(geometry: Conv | Channels) -> int | None:
    return geometry.multiply_adds if isinstance(geometry, Conv) else None


def _plan(plan: Chosen) -> dict[str, object]:
    return {
        "strategy": plan.strategy,
        "words": plan.summary,
        "tasks": plan.tasks,
        "threads": plan.threads,
        "predicted_ms": plan.time_ms,
        "measured_ms": plan.measured_ms or None,
        "in_pairs": plan.in_pairs,
    }


def of_graph(graph: Graph) -> dict[str, object]:
    """Return the values that describe a graph: its ops in running order, and its tensors; unknown values are None."""
    inference = graph.inference
    return {
        "ops": [_op(graph, op) for op in inference.order],
        "tensors": {
            str(number): {"type": tensor.dtype, "shape": None if tensor.dims is None else list(tensor.dims)}
            for number, tensor in inference.tensors.items()
        },
        "given": list(graph.inputs),
        "results": list(graph.outputs),
        "peak_bytes": peak_bytes(graph),
    }


def _op(graph: Graph, op: Op) -> dict[str, object]:
    resolved, fused = graph.inference.resolved.get(op.id), graph.inference.fused
    return {
        "op": op.label,
        "kind": op.kind,
        "reads": [tensor.id for tensor in op.inputs],
        "makes": [tensor.id for tensor in op.outputs],
        "multiply_adds": None if resolved is None else _multiply_adds(resolved.problem.geometry),
        "height": None if resolved is None else height_of(resolved.within(op)),
        "not_run": graph.inference.reasons.get(op.id),
        "fused_into": None if op.id not in fused else fused[op.id].label,
    }

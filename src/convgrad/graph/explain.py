"""The explanation of a graph: a table of its ops, and its tensors."""

from __future__ import annotations

from collections.abc import Sequence

from convgrad.graph.graph import Graph
from convgrad.graph.model import INTEGER_DTYPES, RELU, LogicalTensor, Op, dense_strides, operator_of
from convgrad.graph.resolve import Resolved
from convgrad.parameters import described
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of
from convgrad.words import printable

COLUMNS = ("op", "kind", "reads", "makes", "multiply-adds", "height", "attributes")


@described
def explain(graph: Graph) -> str:
    """Return a finalized graph as a table of its ops and a list of its tensors. Raises GraphError if not finalized.

    >>> src, bias, dst = (LogicalTensor(n, "f32", shape) for n, shape in enumerate([(2, 4, 3), (3,), (2, 4, 3)]))
    >>> graph = Graph([Op(0, "BiasAdd", (src, bias), (dst,), name="add")])
    >>> graph.finalize()
    >>> print(explain(graph).split("\\n\\n")[-1])
    0: f32 2x4x3  given
    1: f32 3      given
    2: f32 2x4x3  result
    """
    inference = graph.inference
    count = len(inference.order)
    head = f"{count} op{'s' * (count > 1)}, {count - len(inference.reasons)} supported"
    header = graph.header
    rows = [COLUMNS, *(_row(op, inference.resolved.get(op.id)) for op in inference.order)]
    reasons = [f"{op.label}: {reason}" for op in inference.order if (reason := _reason(graph, op))]
    lines = [
        f"oneDNN graph {printable(header.version)}, {header.engine_kind}, fpmath {header.fpmath_mode}: {head}",
        f"results alive at one time take at most {peak_bytes(graph):,} bytes, those of unknown extents not counted",
        "",
        *_aligned(rows),
        *reasons,
        "",
        *_tensors(graph),
    ]
    return "\n".join(lines)


def _reason(graph: Graph, op: Op) -> str:
    """Return why an op cannot run, which facts about it are unknown, or which other op's call computes it.

    The text is empty for all other ops.
    """
    inference = graph.inference
    if (call := inference.fused.get(op.id)) is not None:
        return f"computed by the call of {call.label}"
    if op.id in inference.resolved:
        return ""
    if op.id in inference.reasons:
        return f"not run: {inference.reasons[op.id]}"
    inputs = [inference.tensors[tensor.id] for tensor in op.inputs]
    unknown = [f"more of {t} to be known" for t in inputs if t.shape is None or t.dtype == "undef"]
    if operator_of(op) is RELU and not unknown:
        return ""
    values = [f"the values of {t}" for t in inputs if t.dtype in INTEGER_DTYPES]
    return f"waits for {', '.join(values or unknown)}"


def peak_bytes(graph: Graph) -> int:
    """Return the maximum bytes that results take at any time of a run; unknown shapes and types are not counted.

    The run has all inputs, also the outputs of unsupported ops. It returns what these ops read, and so keeps it.
    """
    inference, kept = graph.inference, set(graph.outputs)
    kept |= {tensor.id for op in inference.order if op.id in inference.reasons for tensor in op.inputs}
    alive: dict[int, int] = {}
    peak = total = 0
    for step in inference.steps:
        outputs = () if step.op.id in inference.reasons else step.op.outputs
        for output in (inference.tensors[tensor.id] for tensor in outputs):
            if output.shape is not None and output.format is not None:
                alive[output.id] = output.span(output.shape) * output.format.itemsize
                total += alive[output.id]
                peak = max(peak, total)
        total -= sum(alive.pop(tensor, 0) for tensor in step.released if tensor not in kept)
    return peak


def _row(op: Op, resolved: Resolved | None) -> tuple[str, ...]:
    reads, makes = (", ".join(str(t.id) for t in tensors) for tensors in (op.inputs, op.outputs))
    work = height = ""
    if resolved is not None:
        problem = resolved.within(op)
        geometry, height = problem.geometry, str(height_of(problem))
        work = f"{geometry.multiply_adds:,}" if isinstance(geometry, Conv) else ""
    attributes_of_op = op.attributes if resolved is None else resolved.attributes
    ours = {} if op.max_error is None else {"max_error": op.max_error}
    attributes = " ".join(f"{printable(name)}={_value(value)}" for name, value in {**attributes_of_op, **ours}.items())
    return op.label, printable(op.kind), reads, makes, work, height, attributes


def _value(value: object) -> str:
    return printable(",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _tensors(graph: Graph) -> list[str]:
    """Return a line per tensor in running order: id, name, type, extents, and whether it is given or a result."""
    inference = graph.inference
    notes = dict.fromkeys(graph.outputs, "result")
    order = dict.fromkeys(tensor.id for op in inference.order for tensor in (*op.inputs, *op.outputs))
    computed = {tensor.id for op in inference.order for tensor in op.outputs}
    notes |= {tensor: "given" for tensor in order if tensor not in computed}
    return _aligned([(_description(inference.tensors[tensor]), notes.get(tensor, "")) for tensor in order])


def _description(tensor: LogicalTensor) -> str:
    dense = tensor.shape is None or tensor.strides in (None, dense_strides(tensor.shape))
    strides = "" if dense else f" strides {','.join(map(str, tensor.strides or ()))}"
    layout = "" if tensor.layout_type == "strided" else f" {tensor.layout_type}"
    return f"{tensor}{strides}{layout}"

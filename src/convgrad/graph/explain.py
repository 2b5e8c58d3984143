"""The explanation of a graph: a table of its ops, and a drawing with a vertical line, or rail, per live tensor."""

from __future__ import annotations

from collections.abc import Sequence

from convgrad.graph.graph import Graph
from convgrad.graph.model import INTEGER_DTYPES, RELU, LogicalTensor, Op, dense_strides, operator_of
from convgrad.graph.resolve import Resolved
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of
from convgrad.words import printable

LARGEST_DRAWING = 200
COLUMNS = ("op", "kind", "reads", "makes", "multiply-adds", "height", "attributes")


def explain(graph: Graph) -> str:
    """Return a finalized graph as a table and a drawing, for a terminal. Raises GraphError if it is not finalized.

    >>> src, bias, dst = (LogicalTensor(n, "f32", shape) for n, shape in enumerate([(2, 4, 3), (3,), (2, 4, 3)]))
    >>> graph = Graph([Op(0, "BiasAdd", (src, bias), (dst,), name="add")])
    >>> graph.finalize()
    >>> print(explain(graph).split("\\n\\n")[-1])
    o    0: f32 2x4x3  given
    | o  1: f32 3  given
    *-+  add  BiasAdd
    o    2: f32 2x4x3  result
    """
    found = graph.inference
    count = len(found.order)
    head = f"{count} op{'s' * (count > 1)}, {count - len(found.reasons)} supported"
    header = graph.header
    rows = [COLUMNS, *(_row(op, found.resolved.get(op.id)) for op in found.order)]
    reasons = [f"{op.label}: {reason}" for op in found.order if (reason := _reason(graph, op))]
    lines = [
        f"oneDNN graph {printable(header.version)}, {header.engine_kind}, fpmath {header.fpmath_mode}: {head}",
        f"results alive at one time take at most {peak_bytes(graph):,} bytes, those of unknown extents not counted",
        "",
        *_aligned(rows),
        *reasons,
        "",
        *drawing(graph),
    ]
    return "\n".join(lines)


def _reason(graph: Graph, op: Op) -> str:
    """Return why an op cannot run, which facts about it are unknown, or which other op's call computes it.

    The text is empty for all other ops.
    """
    found = graph.inference
    if (call := found.fused.get(op.id)) is not None:
        return f"computed by the call of {call.label}"
    if op.id in found.resolved:
        return ""
    if op.id in found.reasons:
        return f"not run: {found.reasons[op.id]}"
    inputs = [found.tensors[tensor.id] for tensor in op.inputs]
    unknown = [f"more of {t} to be known" for t in inputs if t.shape is None or t.dtype == "undef"]
    if operator_of(op) is RELU and not unknown:
        return ""
    values = [f"the values of {t}" for t in inputs if t.dtype in INTEGER_DTYPES]
    return f"waits for {', '.join(values or unknown)}"


def peak_bytes(graph: Graph) -> int:
    """Return the maximum bytes that results take at any time of a run; unknown shapes and types are not counted."""
    found, kept = graph.inference, set(graph.outputs)
    alive: dict[int, int] = {}
    peak = total = 0
    for step in found.steps:
        outputs = () if step.op.id in found.reasons else step.op.outputs
        for output in (found.tensors[tensor.id] for tensor in outputs):
            if output.shape is not None and output.format is not None:
                alive[output.id] = output.span(output.shape) * output.format.dtype.itemsize
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
    given = op.attributes if resolved is None else resolved.attributes
    ours = {} if op.max_error is None else {"max_error": op.max_error}
    attributes = " ".join(f"{printable(name)}={_value(value)}" for name, value in {**given, **ours}.items())
    return op.label, printable(op.kind), reads, makes, work, height, attributes


def _value(value: object) -> str:
    return printable(",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


# -- drawing ---------------------------------------------------------------------------------------------------------


def drawing(graph: Graph) -> list[str]:
    """Return the lines of the drawing in running order: ``o`` marks a tensor, and ``*`` an op.

    A tensor keeps its rail until the last op that reads it. An op's line connects the rails of its inputs (``+``) to
    its own mark, on the rail of its output.
    """
    found = graph.inference
    if max(len(found.order), len(found.tensors) // 2) > LARGEST_DRAWING:
        return [f"(no drawing: more than {LARGEST_DRAWING} ops, or twice as many tensors)"]
    kept = set(graph.outputs)
    rails: list[int | None] = []
    lines: list[tuple[str, str]] = []
    for op in found.order:
        for tensor in op.inputs:
            if tensor.id not in rails:
                column = _place(rails, tensor.id)
                lines.append((_tensor_line(rails, column), f"{_description(found.tensors[tensor.id])}  given"))
        reads = [rails.index(tensor.id) for tensor in op.inputs]
        before = list(rails)
        rails = [None if tensor in found.released[op.id] else tensor for tensor in rails]
        makes = [_place(rails, tensor.id) for tensor in op.outputs]
        lines.append((_op_line(before, reads, makes), f"{op.label}  {printable(op.kind)}"))
        for tensor, column in zip(op.outputs, makes, strict=True):
            note = "  result" if tensor.id in kept else ""
            lines.append((_tensor_line(rails, column), f"{_description(found.tensors[tensor.id])}{note}"))
        rails = [None if tensor in found.released[op.id] else tensor for tensor in rails]
    width = max(len(rail) for rail, _ in lines)
    return [f"{rail:{width}}  {text}" for rail, text in lines]


def _place(rails: list[int | None], tensor: int) -> int:
    """Put a tensor on the first free rail, and return the number of the rail."""
    if None not in rails:
        rails.append(None)
    column = rails.index(None)
    rails[column] = tensor
    return column


def _tensor_line(rails: Sequence[int | None], column: int) -> str:
    marks = ("o" if n == column else " " if tensor is None else "|" for n, tensor in enumerate(rails))
    return " ".join(marks).rstrip()


def _op_line(before: Sequence[int | None], reads: Sequence[int], makes: Sequence[int]) -> str:
    """Return the line of an op, from the rails before it and the rail numbers of its inputs and outputs."""
    linked = {*reads, *makes}
    first, last = min(linked, default=0), max(linked, default=0)
    text = ""
    for n in range(max(len(before), last + 1)):
        alive = n < len(before) and before[n] is not None
        inside = first < n < last
        text += "*" if n in makes else "+" if n in reads else "|" if alive else "-" if inside else " "
        text += "-" if first <= n < last else " "
    return text.rstrip()


def _description(tensor: LogicalTensor) -> str:
    dense = tensor.shape is None or tensor.strides in (None, dense_strides(tensor.shape))
    strides = "" if dense else f" strides {','.join(map(str, tensor.strides or ()))}"
    layout = "" if tensor.layout_type == "strided" else f" {tensor.layout_type}"
    return f"{tensor}{strides}{layout}"

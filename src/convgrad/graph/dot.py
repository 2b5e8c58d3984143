"""Graphs in DOT, the language of Graphviz: tensors and ops are nodes; edges run from inputs to ops to outputs."""

from __future__ import annotations

from convgrad.graph.graph import Graph
from convgrad.graph.model import LogicalTensor, Op
from convgrad.parameters import described
from convgrad.words import printable

# The style of each kind of node. The shapes and borders of the kinds differ too, for readers who see no colours.
GIVEN_TENSOR = 'style="rounded,filled" fillcolor="#fdf3d8"'
BETWEEN = 'style="rounded"'
RESULT = 'style="rounded,filled,bold" fillcolor="#dcefd8"'
RUN = 'style="filled" fillcolor="#cfe3f5"'
NOT_RUN = 'style="dashed"'


@described
def to_dot(graph: Graph) -> str:
    r"""Return a finalized graph in DOT, the language of Graphviz. Raises GraphError if it is not finalized.

    >>> src, bias, dst = (LogicalTensor(n, "f32", shape) for n, shape in enumerate([(2, 4, 3), (3,), (2, 4, 3)]))
    >>> graph = Graph([Op(0, "BiasAdd", (src, bias), (dst,), name="add")])
    >>> graph.finalize()
    >>> print(to_dot(graph))
    digraph {
      node [shape=box]
      tensor0 [label="0\nf32 2x4x3" style="rounded,filled" fillcolor="#fdf3d8"]
      tensor1 [label="1\nf32 3" style="rounded,filled" fillcolor="#fdf3d8"]
      op0 [label="add\nBiasAdd" style="filled" fillcolor="#cfe3f5"]
      tensor2 [label="2\nf32 2x4x3" style="rounded,filled,bold" fillcolor="#dcefd8"]
      tensor0 -> op0
      tensor1 -> op0
      op0 -> tensor2
    }
    """
    inference = graph.inference
    styles = dict.fromkeys(graph.inputs, GIVEN_TENSOR) | dict.fromkeys(graph.outputs, RESULT)
    nodes: list[str] = []
    edges: list[str] = []
    for op in inference.order:
        nodes += (_tensor(inference.tensors[tensor.id], styles.get(tensor.id, BETWEEN)) for tensor in op.inputs)
        nodes.append(_op(op, NOT_RUN if op.id in inference.reasons else RUN))
        nodes += (_tensor(inference.tensors[tensor.id], styles.get(tensor.id, BETWEEN)) for tensor in op.outputs)
        edges += (f"tensor{tensor.id} -> op{op.id}" for tensor in op.inputs)
        edges += (f"op{op.id} -> tensor{tensor.id}" for tensor in op.outputs)
    statements = dict.fromkeys([*nodes, *edges])  # without duplicates, because several ops can have the same tensor
    return "\n".join(["digraph {", "  node [shape=box]", *(f"  {statement}" for statement in statements), "}"])


def _tensor(tensor: LogicalTensor, style: str) -> str:
    _, _, described = str(tensor).rpartition(": ")
    return f'tensor{tensor.id} [label="{_quoted(tensor.label)}\\n{_quoted(described)}" {style}]'


def _op(op: Op, style: str) -> str:
    return f'op{op.id} [label="{_quoted(op.label)}\\n{_quoted(printable(op.kind))}" {style}]'


def _quoted(text: str) -> str:
    """Return a text escaped for a quoted string of DOT."""
    return text.replace("\\", "\\\\").replace('"', '\\"')

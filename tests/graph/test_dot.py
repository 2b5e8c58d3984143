"""A graph in DOT: a node for each tensor and op, an edge for each read and each result, texts that DOT can hold."""

from __future__ import annotations

import re

import pytest

from convgrad.errors import GraphError
from convgrad.graph import Graph, LogicalTensor, Op, to_dot
from convgrad.graph.reader import read
from tests.support.places import EXAMPLES

STEP = EXAMPLES / "digits_step.json"


def test_each_node_and_edge_once() -> None:
    graph = read(STEP)
    _, _, *lines, _ = to_dot(graph).splitlines()
    nodes = [line.split()[0] for line in lines if "->" not in line]
    edges = [tuple(line.split(" -> ")) for line in map(str.strip, lines) if "->" in line]
    assert sorted(nodes) == sorted([*(f"op{op.id}" for op in graph.ops), *(f"tensor{n}" for n in graph.tensors)])
    reads = {(f"tensor{tensor.id}", f"op{op.id}") for op in graph.ops for tensor in op.inputs}
    makes = {(f"op{op.id}", f"tensor{tensor.id}") for op in graph.ops for tensor in op.outputs}
    assert sorted(edges) == sorted(reads | makes)


def test_a_result_that_is_read_is_one_node() -> None:
    src, dst, end = (LogicalTensor(n, "f32", (2, 3)) for n in range(3))
    graph = Graph([Op(0, "ReLU", (src,), (dst,)), Op(1, "Multiply", (dst, dst), (end,))], outputs=[1, 2])
    graph.finalize()
    text = to_dot(graph)
    assert len(re.findall(r"^  tensor1 \[", text, re.MULTILINE)) == 1
    assert text.count("tensor1 -> op1") == 1
    assert "filled,bold" in next(line for line in text.splitlines() if line.startswith("  tensor1 ["))


def test_names_are_quoted() -> None:
    src, dst = LogicalTensor(0, "f32", (2, 3), name='a "b" \\'), LogicalTensor(1, "f32", (2, 3))
    graph = Graph([Op(0, "ReLU", (src,), (dst,), name="\x1b\n")])
    graph.finalize()
    assert r'tensor0 [label="0 a \"b\" \\\nf32 2x3"' in to_dot(graph)
    assert r'op0 [label="??\nReLU"' in to_dot(graph)


def test_unfinalized_graph() -> None:
    src, dst = (LogicalTensor(n, "f32", (2, 3)) for n in range(2))
    with pytest.raises(GraphError, match="finalize"):
        to_dot(Graph([Op(0, "ReLU", (src,), (dst,))]))

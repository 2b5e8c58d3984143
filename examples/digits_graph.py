"""One training step of train_digits.py as a oneDNN graph: every convolution, every gradient, and what lies between.

The graph begins with the images and the parameters, is given the gradients by the network's two results, and ends with
the gradients by all parameters. What ReLU, its gradient and Add make is given, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.graph import Execution, Graph, LogicalTensor, Op, to_json
from convgrad.verify import exact

Array = NDArray[Any]

SOURCES = {"edges": "images", "strokes": "edges_relu", "digit": "strokes_relu", "picture": "strokes_relu"}
TRANSPOSED = {"picture"}


def operator(layer: str, gradient: str = "") -> str:
    """Return the layer's operator: of the forward, or of a gradient, BackwardData or BackwardWeights."""
    return ("ConvTranspose" if layer in TRANSPOSED else "Convolution") + gradient


class Builder:
    """Adds op after op; tensors are known by name. Those of ``shapes`` have known extents, others follow."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes, self.ops = shapes, []
        self.tensors: dict[str, LogicalTensor] = {}

    def tensor(self, name: str) -> LogicalTensor:
        """Return the tensor of a name, described at its first use."""
        described = LogicalTensor(len(self.tensors), "f32", self.shapes.get(name), name=name)
        return self.tensors.setdefault(name, described)

    def add(self, output: str, kind: str, *inputs: str, **attributes: Any) -> None:
        """Add an op that makes ``output``, which is also the op's name."""
        read, made = tuple(map(self.tensor, inputs)), self.tensor(output)
        self.ops.append(Op(len(self.ops), kind, read, (made,), attributes, name=output))


def step_graph(shapes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Mapping[str, Any]]) -> Graph:
    """Return the graph of a step, from the shapes of what it is given and every layer's attributes."""
    build = Builder({**shapes, "diff_strokes_sum": shapes["strokes_relu"]})
    for name, source in SOURCES.items():
        build.add(f"{name}_dst", operator(name), source, name, f"{name}_bias", **attributes[name])
        if f"{name}_relu" in shapes:
            build.add(f"{name}_relu", "ReLU", f"{name}_dst")

    for name in ("digit", "picture"):
        wanted = {} if name in TRANSPOSED else {"dst_shape": shapes["strokes_relu"]}
        made, kind = f"diff_strokes_by_{name}", operator(name, "BackwardData")
        build.add(made, kind, f"diff_{name}", name, **attributes[name], **wanted)
    build.add("diff_strokes_sum", "Add", "diff_strokes_by_digit", "diff_strokes_by_picture")
    build.add("diff_strokes", "ReLUBackward", "strokes_relu", "diff_strokes_sum", use_dst=True)
    wanted = {"dst_shape": shapes["edges_relu"]}
    build.add(
        "diff_edges_relu", "ConvolutionBackwardData", "diff_strokes", "strokes", **attributes["strokes"], **wanted
    )
    build.add("diff_edges", "ReLUBackward", "edges_relu", "diff_edges_relu", use_dst=True)

    for name, source in SOURCES.items():
        wanted = {"weights_shape": shapes[name]}
        made, kind = f"diff_{name}_weights", operator(name, "BackwardWeights")
        build.add(made, kind, source, f"diff_{name}", **attributes[name], **wanted)
        build.add(f"diff_{name}_bias", "BiasAddBackward", f"diff_{name}")
    graph = Graph(build.ops)
    graph.finalize()
    return graph


def tensors_of(graph: Graph, given: Mapping[str, Array]) -> dict[str, Array]:
    """Return by decimal id what the graph is given, and the exact value of every result, rounded once."""
    ids = {tensor.name: number for number, tensor in graph.tensors.items()}
    tensors = {ids[name]: array for name, array in given.items()}

    def keep_exact(execution: Execution) -> None:
        op, operands = execution.op, execution.prepared.taken.values()
        if op.outputs[0].id in graph.outputs:
            tensors[op.outputs[0].id] = exact(op.kind, *operands, **graph.inference.resolved[op.id].attributes)

    graph.run(given, observe=keep_exact)
    return {str(number): tensors[number] for number in sorted(tensors)}


def record(path: Path, given: Mapping[str, Array], attributes: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a step as two files: the graph as path.json, its tensors as path.npz."""
    graph = step_graph({name: array.shape for name, array in given.items()}, attributes)
    path.with_suffix(".json").write_text(to_json(graph), encoding="ascii")
    np.savez_compressed(path.with_suffix(".npz"), **tensors_of(graph, given))

"""The plan on paper of what Dask is given: the tasks of its graph are the pieces and the joins of paper."""

from __future__ import annotations

import operator
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dask.array")
import dask.array as da
from dask._task_spec import Task

import convgrad.dask
from convgrad.dask.tasks import Sum
from convgrad.notation import problem
from convgrad.scale.costs import Network, Worker, costs_of
from convgrad.scale.shares import Piece, images_a_leaf, leaves_of, tree

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import simulated

LAYERS = {  # of the notation, and extents; chunks of images
    "packs": ("BWD_W f32 NXC mb601ic2ih7oc3oh7kh3ph1", (7, 7), [3, 5, 64, 80, 1000]),
    "images": ("BWD_W f32 NXC mb600ic2ih20oc3oh20kh3ph1", (20, 20), [1, 7, 16, 64, 600, (250, 3, 90, 257)]),
}
CASES = [(name, chunk) for name, (_, _, chunks) in LAYERS.items() for chunk in chunks]


def graph_of(line: str, extents: tuple[int, ...], chunk: Any) -> dict[Any, Any]:
    """Return the tasks of a weight gradient by key: what is called, and the keys of its own that it needs."""
    conv: Any = problem(line).geometry
    src, dst = (
        da.zeros((conv.batch, *extents, channels), dtype="f4", chunks=(chunk, -1, -1, -1))
        for channels in (conv.src_channels, conv.dst_channels)
    )
    layer: dict[str, Any] = {"weights_shape": (3, 3, conv.src_channels, conv.dst_channels), "auto_pad": "same_upper"}
    result = convgrad.dask.run("ConvolutionBackwardWeights", src, dst, **layer)
    graph = dict(result.dask)
    tasks = {key: graph[key] for key in graph if key[0].startswith("Conv") and "-read" not in key[0]}
    return {key: (called(task), sorted(task.dependencies & tasks.keys())) for key, task in tasks.items()}


def called(task: Task) -> Any:
    """Return what a task calls, which one on whole blocks is given with them."""
    return task.args[0].value if task.func is operator.call else task.func


@pytest.mark.parametrize(("name", "chunk"), CASES)
def test_the_graph_has_the_joins_of_paper_which_a_schedule_adds_to_the_tree(name: str, chunk: Any) -> None:
    line, extents, _ = LAYERS[name]
    one = problem(line)
    leaf = images_a_leaf(one)
    spans: dict[Any, range] = {}
    pieces, joins = [], []
    for key, (task, needs) in graph_of(line, extents, chunk).items():
        if isinstance(task, Sum):
            spans[key] = range(task.images.start // leaf, -(-task.images.stop // leaf))
            pieces.append(Piece(spans[key], len(task.images), len(task.images)))
        else:
            spans[key] = range(spans[needs[0]].start, spans[needs[-1]].stop)
            joins.append((spans[key], len(needs)))
    assert [leaf for piece in pieces for leaf in piece.leaves] == list(range(leaves_of(one)))
    assert joins == [(join.leaves, len(join.parts)) for level in tree(pieces, 1) for join in level]
    network, worker = Network(1e-3, 1e8), Worker(1e3, 1e3)
    plan = costs_of(one, pieces, 5, network, worker)
    quiet = simulated.Simulation(plan, network, worker).run()
    assert quiet.moved_bytes == sum(plan.moved_bytes)
    late = simulated.Simulation(plan, network, worker, simulated.Noise(1.2, 0.4, deaths=2, seed=7)).run()
    assert quiet.value == late.value == simulated.specified(leaves_of(one))

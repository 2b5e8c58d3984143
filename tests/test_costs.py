"""The plan on paper: its bytes are those of pieces and slabs, and schedules that are simulated keep to it."""

from __future__ import annotations

import csv
import random
import sys
from functools import reduce
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from convgrad import partials, scale
from convgrad.notation import problem
from convgrad.scale.costs import Costs, Network, Worker, costs, costs_of
from convgrad.scale.shares import Piece, cut, known, leaves_of, owner, sizes, tree
from convgrad.spec.order import FAN_IN, tree_height

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import simulated  # noqa: E402
import thousand_workers  # noqa: E402

NETWORK = Network(1e-3, 1e9, 1e-4)
WORKER = Worker(1e10, 1e8, 1e10, store_bytes_per_s=5e8)
PACKS = "BWD_W f32 NXC mb3001ic16ih7oc32oh7kh3ph1"  # 601 leaves of 5 images
IMAGES = "BWD_W bf16 NXC mb700ic8ih20oc8oh20kh3ph1"

CUTS = [(line, size, workers) for line in (PACKS, IMAGES) for size in (1, 7, 16, 48, 700) for workers in (1, 3, 40)]


def planned(line: str, size: int | None, workers: int) -> Costs:
    return costs(problem(line), workers, NETWORK, WORKER, size)


@pytest.mark.parametrize("line", [PACKS, IMAGES])
def test_pieces_are_all_leaves_and_every_byte_once(line: str) -> None:
    one = problem(line)
    geometry = one.geometry
    data = [np.prod(geometry.src_shape), np.prod(geometry.dst_shape)]  # type: ignore[union-attr]
    for size in (1, 7, 48):
        pieces = cut(one, size)
        assert [leaf for piece in pieces for leaf in piece.leaves] == list(range(leaves_of(one)))
        assert sum(piece.read_bytes for piece in pieces) == sum(data) * one.operand_format.dtype.itemsize


def test_rows_between_two_pieces_are_read_twice() -> None:
    """Of a kernel of 5 rows and stride 2, 3 rows of src at each cut."""
    forward = problem("FWD_D f32 NXC mb4ic3ih41iw10oc2oh21ow10kh5sh2ph2kw1")
    plan = costs(forward, 2, NETWORK, WORKER, 1, rows=7)
    assert len(plan.pieces) == 4 * 3
    assert plan.halo_bytes == 4 * 2 * 3 * (10 * 3) * 4
    assert plan.read_bytes == 4 * 41 * 10 * 3 * 4 + plan.halo_bytes + 2 * (5 * 3 * 2) * 4
    assert plan.read_s == plan.read_bytes / 2 / WORKER.read_bytes_per_s  # half of the data each, and the weights
    assert not plan.levels
    assert plan.join_s == 0


def test_the_sums_that_a_piece_knows_on_paper_are_those_that_it_has() -> None:
    y = np.ones((90, 300, 3), np.float32)
    for first, end in ((0, 90), (3, 40), (16, 32), (15, 49)):
        part = partials("BiasAddBackward", y[first:end], first=first)
        assert part.nbytes == known(range(first, end)) * y[0, 0].nbytes


def test_the_tree_of_pieces_is_as_deep_as_paper_says_and_its_root_has_all() -> None:
    for number in (1, 2, 16, 17, 256, 257, 4097):
        levels = tree(cut(problem(f"BWD_W f32 NXC mb{number}ic1iw300oc1ow300kw1"), 1), 50)
        assert len(levels) == max(1, -(-tree_height(number) // (FAN_IN - 1)))
        assert [join.leaves for join in levels[-1]] == [range(number)]


@pytest.mark.parametrize(("line", "size", "workers"), CUTS)
def test_a_quiet_schedule_moves_the_bytes_of_paper_within_its_times(line: str, size: int, workers: int) -> None:
    plan = planned(line, size, workers)
    outcome = simulated.Simulation(plan, NETWORK, WORKER).run()
    assert outcome.moved_bytes == sum(plan.moved_bytes)
    assert outcome.tasks == len(plan.pieces) + sum(map(len, plan.levels))
    least = max(plan.bounds.values())
    assert least <= outcome.makespan_s * (1 + 1e-12)
    assert outcome.makespan_s <= plan.most_s * (1 + 1e-12)
    assert outcome.value == simulated.specified(leaves_of(plan.problem))


def test_the_tree_is_one_whoever_is_slow_or_dies() -> None:
    plan = planned(PACKS, 7, 12)
    expected = simulated.specified(leaves_of(plan.problem))
    made = set()
    for seed in range(40):
        noise = simulated.Noise(tail=1.1, slow=0.3, slower=9.0, deaths=seed % 12, seed=seed)
        outcome = simulated.Simulation(plan, NETWORK, WORKER, noise).run()
        assert outcome.value == expected, seed
        made.add((outcome.makespan_s, outcome.tasks))
    assert len(made) == 40
    again = {tasks for _, tasks in made}
    assert min(again) == len(plan.pieces) + sum(map(len, plan.levels)) < max(again)


def test_another_order_of_additions_would_be_seen() -> None:
    """The sums of pieces added as they come, or one after another, are other trees."""
    leaves = [simulated.leaf(n) for n in range(40)]
    assert reduce(simulated.added, leaves) != simulated.specified(40)
    plan = planned(IMAGES, 16, 5)
    parts = [known_ for piece in plan.pieces for _, known_ in simulated._symbols(piece.leaves, 700)]
    assert reduce(simulated.added, parts) != simulated.specified(700) != reduce(simulated.added, parts[::-1])


def test_the_best_cut_is_the_best_of_those_that_fit() -> None:
    one = problem(PACKS)
    for workers in (1, 8, 100):
        best = planned(PACKS, None, workers)
        some = sizes(one, workers)
        assert best.time_s == min(planned(PACKS, size, workers).time_s for size in some)
        assert all(leaves_of(one) <= 16 * workers * size for size in some)
    leaf_bytes = cut(one, 1)[0].read_bytes
    assert max(sizes(one, 1, 20 * leaf_bytes)) == 16
    assert sizes(one, 1, leaf_bytes / 2) == [1]


def test_paper_reads_what_one_machine_reads() -> None:
    """Of the cuts that ``scale.plan`` makes of the same problems: of leaves, and of rows with their halos."""
    images, weights = np.zeros((40, 30, 30, 4), np.float32), np.zeros((3, 3, 4, 4), np.float32)
    same: dict[str, Any] = {"auto_pad": "same_upper"}
    for operator, second, memory in (
        ("ConvolutionBackwardWeights", images, "1MB"),
        ("Convolution", weights, "200kB"),
        ("Convolution", weights, "30kB"),
    ):
        more = {"weights_shape": weights.shape} if second is images else {"out": np.empty_like(images)}
        plan = scale.plan(operator, zarr_like(images), zarr_like(second), memory=memory, **same, **more)
        paper = costs(plan.problem, 1, NETWORK, WORKER, plan.cut.images, plan.cut.rows)
        assert len(paper.pieces) == plan.pieces > 1
        assert (paper.read_bytes, paper.halo_bytes) == (plan.read_bytes, plan.twice_bytes)
        assert (paper.halo_bytes > 0) == (plan.cut.rows is not None)


def zarr_like(array: Any) -> Any:
    """Return what slices and is no array, so that it is read."""
    return SimpleNamespace(shape=array.shape, dtype=array.dtype, __getitem__=array.__getitem__)


def test_workers_have_neighbours_and_all_work() -> None:
    for pieces, workers in ((40, 7), (7, 7), (3, 7)):
        owners = [owner(n, pieces, workers) for n in range(pieces)]
        assert owners == sorted(owners)
        numbers = [owners.count(n) for n in range(workers)]
        assert max(numbers) - min(numbers) <= 1


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(ValueError, match="whole images here; got rows=3"):
        costs(problem(IMAGES), 2, NETWORK, WORKER, 1, rows=3)
    with pytest.raises(ValueError, match="no images has no pieces"):
        planned("BWD_W f32 NXC mb0ic1iw3oc1ow3kw1", None, 1)


def written() -> list[dict[str, str]]:
    with (BENCHMARKS / "results" / "thousand_workers.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_figures_written_are_what_the_program_finds() -> None:
    found = [
        {name: str(value) for name, value in row.items()}
        for row in thousand_workers.rows("unet_level1", thousand_workers.LAYERS["unet_level1"], 10, 5)
    ]
    assert found == [row for row in written() if (row["layer"], row["workers"]) == ("unet_level1", "10")]


@pytest.mark.long
def test_all_figures_written_are_what_the_program_finds() -> None:
    found = [
        {name: str(value) for name, value in row.items()}
        for layer, line in thousand_workers.LAYERS.items()
        for workers in thousand_workers.WORKERS
        for row in thousand_workers.rows(layer, line, workers, thousand_workers.SEEDS)
    ]
    assert found == written()


@pytest.mark.long
def test_a_thousand_schedules_of_pieces_of_any_size_make_one_tree_within_the_times_of_paper() -> None:
    chance = random.Random(1)
    for seed in range(1000):
        images, workers = chance.randrange(1, 900), chance.randrange(1, 40)
        one = problem(f"BWD_W f32 NXC mb{images}ic4ih20oc8oh20kh3ph1")
        ends = sorted({*(chance.randrange(1, images + 1) for _ in range(chance.randrange(90))), images})
        pieces = [Piece(range(*run), chance.randrange(10**6), chance.randrange(10**8)) for run in pairwise((0, *ends))]
        network = Network(10 ** chance.uniform(-5, -1), 10 ** chance.uniform(4, 9), 10 ** chance.uniform(-6, -2))
        plan = costs_of(one, pieces, workers, network, WORKER)
        quiet = simulated.Simulation(plan, network, WORKER).run()
        assert quiet.moved_bytes == sum(plan.moved_bytes), seed
        assert max(plan.bounds.values()) <= quiet.makespan_s * (1 + 1e-12), seed
        assert quiet.makespan_s <= plan.most_s * (1 + 1e-12), seed
        noise = simulated.Noise(1.1, 0.3, 9.0, chance.randrange(workers), seed)
        late = simulated.Simulation(plan, network, WORKER, noise).run()
        assert quiet.value == late.value == simulated.specified(images), seed

"""The plan on paper: its bytes are those of pieces and slabs, and schedules that are simulated keep to it."""

from __future__ import annotations

import csv
import sys
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

from convgrad import partials
from convgrad.notation import problem
from convgrad.scale.costs import Costs, Network, Worker, costs
from convgrad.scale.shares import cut, known, leaves_of, owner, sizes, tree
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

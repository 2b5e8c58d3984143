"""The sums of runs of leaves: known from left to right, joined as the tree has them, whichever way they are grouped."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest

from convgrad.notation import problem
from convgrad.spec.chains import tree
from convgrad.spec.geometry import Channels
from convgrad.spec.order import FAN_IN, order_of, over_positions
from convgrad.spec.pieces import Nodes, chunk_images, combine, leaf_images, nodes_of, total

RUNS = 2000
LEAVES = 1200  # three levels


class Term:
    """A sum as it was written: adding is neither associative nor commutative."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __add__(self, other: Term) -> Term:
        return Term(f"({self.text}+{other.text})")


def added(one: Term, other: Term) -> Term:
    return one + other


def leaves(first: int, end: int) -> list[Term]:
    return [Term(str(leaf)) for leaf in range(first, end)]


def known(first: int, end: int) -> list[tuple[Nodes, Term]]:
    """The sums of a run, each by the tree of its own leaves alone, as a call on their images makes it."""
    return [
        (nodes, tree(leaves(nodes.leaves.start, min(nodes.leaves.stop, end))))  # type: ignore[arg-type, misc]
        for nodes in nodes_of(first, end)
    ]


def cuts(rng: np.random.Generator, first: int, end: int) -> list[int]:
    inner = rng.integers(first, end + 1, int(rng.integers(1, 8)))
    return sorted([first, *map(int, inner), end])


def test_a_run_is_covered_once_and_by_as_few_sums_as_its_neighbours_allow() -> None:
    rng = np.random.default_rng(1)
    for _ in range(RUNS):
        first, end = sorted(rng.integers(0, LEAVES, 2).tolist())
        made = nodes_of(first, end)
        assert [leaf for nodes in made for leaf in nodes.leaves] == list(range(first, end))
        assert all(nodes.number == 1 or nodes.first % FAN_IN == 0 for nodes in made)
        assert all(a.and_next(b) is None for a, b in pairwise(made))
        assert all(nodes.number < FAN_IN for nodes in made)


def test_neighbours_join_to_what_their_run_is_in_any_grouping() -> None:
    rng = np.random.default_rng(2)
    for _ in range(RUNS):
        first, end = sorted(rng.integers(0, LEAVES, 2).tolist())
        parts = [[(n, None) for n in nodes_of(a, b)] for a, b in pairwise(cuts(rng, first, end))]
        while len(parts) > 1:
            at = int(rng.integers(len(parts) - 1))
            parts[at : at + 2] = [combine([*parts[at], *parts[at + 1]], lambda *_: None)]
        assert tuple(nodes for nodes, _ in parts[0]) == nodes_of(first, end)


@pytest.mark.parametrize("every", [1, 15, 16, 17, 100])
def test_every_length_of_batch_gives_the_tree_of_all_its_leaves(every: int) -> None:
    """By the sums as they are written: the first, the last and all between are added as the whole tree adds them."""
    rng = np.random.default_rng(every)
    for end in [*range(1, 40, 7), 255, 256, 257, 271, 272, 273, int(rng.integers(300, LEAVES))]:
        expected = tree(leaves(0, end)).text  # type: ignore[arg-type, attr-defined]
        regular = [*range(0, end, every), end]
        for at in (regular, cuts(rng, 0, end)):
            parts = [one for a, b in pairwise(at) for one in known(a, b)]
            assert total(combine(parts, added), added).text == expected, (end, at)


def test_chains_go_on_left_to_right_and_not_otherwise() -> None:
    """Where the second half of 16 leaves is summed by itself first, that is another sum."""
    halves = [known(0, 8)[0][1], tree(leaves(8, 16))]  # type: ignore[arg-type]
    assert (halves[0] + halves[1]).text != tree(leaves(0, 16)).text  # type: ignore[arg-type, attr-defined, operator]
    assert len(nodes_of(8, 16)) == 8


@pytest.mark.parametrize("axes", [1, 2])
def test_leaves_are_those_of_the_order(axes: int) -> None:
    """One image more than a leaf begins a block of its own; one of more than 256 positions is a unit."""
    for positions in (*range(1, 300), 1000):
        extents = (1, positions)[-axes:]
        each = leaf_images(Channels(1, 1, extents))
        orders = [over_positions(batch, extents) for batch in (each, each + 1)]
        assert [order.units * order.blocks for order in orders] == [orders[0].blocks, 2 * orders[0].blocks]
        assert each == 1 or orders[0].blocks == 1


def test_a_transposed_gradient_has_the_leaves_of_its_smaller_side() -> None:
    one = problem("BWD_W f32 NXC mb8ic4ih7oc4oh7kh3ph1")
    assert (leaf_images(one.geometry), order_of(one).lines_a_block) == (5, 5)


def test_chunks_added_one_after_another_are_the_whole_sum() -> None:
    for batch in (*range(1, 100), *range(100, 3 * LEAVES, 97)):
        for extents in ((7, 7), (16, 17)):
            geometry = Channels(batch, 1, extents)
            each, chunk = leaf_images(geometry), chunk_images(geometry)
            whole = leaves(0, -(-batch // each))
            assert chunk % each == 0
            parts = [tree(whole[at : at + chunk // each]) for at in range(0, len(whole), chunk // each)]
            assert reduce(added, parts).text == tree(whole).text
            assert len(parts) > 1 or len(whole) == 1

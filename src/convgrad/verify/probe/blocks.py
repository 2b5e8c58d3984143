"""The parts of a sum's tree (chains and joins), and a name for its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convgrad.cached import cached_property
from convgrad.verify.probe.tree import Tree


@dataclass(frozen=True)
class Chain:
    """One term, or ``size`` terms that are added one by one; ``terms`` has those examined, in the order of addition."""

    size: int
    terms: tuple[int, ...]

    @property
    def first(self) -> int:
        """The first of the terms in the order of the sum's definition."""
        return min(self.terms)

    @property
    def key(self) -> object:
        """A key that is equal for chains that are drawn alike."""
        return self.size

    @property
    def step(self) -> int:
        """The distance between terms, negative if the order is descending; 0 if distances differ."""
        steps = {b - a for a, b in zip(self.terms, self.terms[1:], strict=False)}
        if len(self.terms) < self.size:  # some terms were not seen
            span = abs(self.terms[-1] - self.terms[0])
            ordered = all(step > 0 for step in steps) or all(step < 0 for step in steps)
            return (1 if self.terms[-1] > self.terms[0] else -1) if ordered and span < self.size else 0
        return steps.pop() if len(steps) == 1 else 1 if not steps else 0


@dataclass(frozen=True)
class StepwiseSum:
    """Parts that are added in steps: the first step adds its parts to each other, a later one its parts to the sum."""

    size: int
    steps: tuple[tuple[Part, ...], ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts of the join, in the order of addition."""
        return tuple(part for step in self.steps for part in step)

    @property
    def one_by_one(self) -> bool:
        """Whether each step adds two numbers, not more at once."""
        return len(self.steps[0]) == 2 and all(len(step) == 1 for step in self.steps[1:])

    @cached_property
    def first(self) -> int:
        """The first of the terms in the order of the sum's definition."""
        return min(part.first for part in self.parts)

    @cached_property
    def key(self) -> object:
        """A key that is equal for joins that are drawn alike."""
        return tuple(tuple(part.key for part in step) for step in self.steps)


Part = Chain | StepwiseSum


def parts_of(tree: Tree) -> Part:
    """Return a tree as one part: a chain, or a join of smaller parts.

    The path from a node down to its largest subtrees becomes one join, or a chain if it adds only single terms.
    The path continues into a chain of single terms only if the node has no other subtree. The path ends at a node with
    two equally large subtrees, because these are separate parts of the join.
    """
    nodes: list[list[int]] = [[] for _ in tree.sizes]
    leaves: list[list[int]] = [[] for _ in tree.sizes]
    for node, above in enumerate(tree.above[1:].tolist(), 1):
        nodes[above].append(node)
    for term, over in zip(tree.examined.tolist(), tree.over.tolist(), strict=True):
        leaves[over].append(term)
    chained = [False] * tree.sizes.size
    for node in range(tree.sizes.size - 1, -1, -1):
        below = nodes[node]
        chained[node] = len(below) + len(leaves[node]) <= 2 and (not below or (len(below) == 1 and chained[below[0]]))
    return _part(0, tree.sizes.tolist(), chained, nodes, leaves)


def _part(
    node: int, sizes: Sequence[int], chained: Sequence[bool], nodes: list[list[int]], leaves: list[list[int]]
) -> Part:
    """Return the chain or join at a node. Recursion is shallow: subtrees off the path are chains or half as large."""
    path: list[tuple[int, tuple[Part, ...]]] = []  # from the top: a node's size, and the other parts joined there
    while True:
        below = sorted(nodes[node], key=lambda n: (chained[n], -sizes[n]))
        ends = not below or (len(below) > 1 and (chained[below[0]] or sizes[below[0]] == sizes[below[1]]))
        aside = [_part(n, sizes, chained, nodes, leaves) for n in (below if ends else below[1:])]
        step = sorted((*aside, *(Chain(1, (term,)) for term in leaves[node])), key=lambda part: part.first)
        path.append((sizes[node], tuple(step)))
        if ends:
            return _part_of(path[::-1])
        node = below[0]


def _part_of(path: Sequence[tuple[int, tuple[Part, ...]]]) -> Part:
    """Return the part of a path, given from its lowest node: a chain, or a join that may begin with a chain."""
    top = path[-1][0]
    run = 0
    if len(path[0][1]) <= 2 and all(part.size == 1 for part in path[0][1]):
        run = 1 + next(
            (at for at, (_, step) in enumerate(path[1:]) if [part.size for part in step] != [1]), len(path) - 1
        )
    steps = [step for _, step in path[run:] if step]
    if not run:
        return StepwiseSum(top, tuple(steps))
    terms = [part.first for _, step in path[:run] for part in step]
    if len(terms) > 2 and terms[2] < terms[0]:  # the first two added are interchangeable
        terms[:2] = terms[1::-1]
    chain = Chain(path[run - 1][0] if steps else top, tuple(terms))
    if not steps:
        return chain
    return StepwiseSum(top, (tuple(sorted((chain, *steps[0]), key=lambda part: part.first)), *steps[1:]))


def chains(part: Part) -> tuple[Chain, ...]:
    """Return all chains of a part, sorted by their first terms."""
    if isinstance(part, Chain):
        return (part,)
    return tuple(sorted((c for p in part.parts for c in chains(p)), key=lambda chain: chain.first))


def binary(part: Part) -> bool:
    """Return whether no addition of a part adds more than two numbers at once."""
    return isinstance(part, Chain) or (part.one_by_one and all(binary(p) for p in part.parts))


def name(part: Part, height: int) -> str:
    """Return the kind of order, in a few words.

    >>> name(StepwiseSum(8, ((Chain(4, (0, 2, 4, 6)), Chain(4, (1, 3, 5, 7))),)), 5)
    '2 lanes, joined one after the other'
    >>> block = StepwiseSum(8, ((Chain(4, (0, 2, 4, 6)), Chain(4, (1, 3, 5, 7))),))
    >>> later = StepwiseSum(8, ((Chain(4, (8, 10, 12, 14)), Chain(4, (9, 11, 13, 15))),))
    >>> name(StepwiseSum(16, ((block, later),)), 6)
    '2 blocks of 2 lanes, joined by a tree'
    """
    if isinstance(part, Chain):
        return {1: "one chain", -1: "one chain, the last term first"}.get(
            part.step, "one chain, in an order of its own"
        )
    parts, all_chains = part.parts, chains(part)
    if not binary(part):
        return f"a tree that joins up to {_widest(part)} at once"
    if height == (part.size - 1).bit_length() + 1:
        return "pairwise, of the least height there is"
    many = len({chain.step for chain in all_chains}) == 1 and all_chains[0].step == len(all_chains)
    what = f"{len(all_chains)} {'lanes' if many else 'blocks'}"
    if (pairs := _pairs_of_lanes(part)) > 1:
        alone = len(all_chains) - 2 * pairs
        if sum(chain.size > 1 for chain in all_chains) <= 2 * pairs:
            return f"{pairs + alone} blocks of {'up to ' * bool(alone)}2 lanes, joined by a tree"
    if part.one_by_one and len(parts) == len(all_chains):
        return f"{what}, joined one after the other"
    return f"{what}, joined by a tree"


def _pairs_of_lanes(part: Part) -> int:
    """Return the number of blocks in which one chain adds the even terms, and another the odd ones."""
    if isinstance(part, Chain):
        return 0
    first = part.steps[0]
    lanes = [isinstance(p, Chain) and (p.step == 2 or p.size == 1) for p in first]
    is_pair = len(first) == 2 and all(lanes) and first[1].first == first[0].first + 1 and first[0].size > 1
    return is_pair + sum(map(_pairs_of_lanes, part.parts))


def _widest(part: Part) -> int:
    if isinstance(part, Chain):
        return min(part.size, 2)
    own = [len(part.steps[0]), *(len(step) + 1 for step in part.steps[1:])]
    return max(*own, *map(_widest, part.parts))

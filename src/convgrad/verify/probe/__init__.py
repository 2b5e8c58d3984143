"""The order in which a function adds, revealed by calls: the tree of a sum, its blocks, and its rounding depth."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from convgrad import formats
from convgrad.array_types import Array
from convgrad.errors import UnsupportedError
from convgrad.formats import Format
from convgrad.functional.call import Prepared, bind, problem_of_row
from convgrad.functional.types import DType
from convgrad.spec.bound import gamma
from convgrad.spec.operators import find
from convgrad.spec.order import last_additions
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.verify.check import as_result
from convgrad.verify.foreign import Function, arguments
from convgrad.verify.probe.asker import RESOLUTIONS, Asker, Impossible
from convgrad.verify.probe.blocks import Chain, Part, StepwiseSum, binary, chains, name, parts_of
from convgrad.verify.probe.draw import draw
from convgrad.verify.probe.masks import VALUES, masks_of
from convgrad.verify.probe.replay import kept_in
from convgrad.verify.probe.sample import sample
from convgrad.verify.probe.tree import Tree, along, confirm, grow
from convgrad.words import described

MAX_BLOCKS = 16  # an order of more blocks is declared by its rounding depth
CONFIRMED = 128  # maximum number of pairs that confirm a tree, in at most four calls


@dataclass(frozen=True)
class Order:
    """The order of a sum that a probe revealed; ``str`` describes and draws the order.

    ``tree`` has the sum's chains and joins over ``terms`` terms, of which ``seen`` were examined. ``tree`` is None if
    no tree explains the function's results; ``impossible`` then has the reason. ``height`` is the rounding depth: the
    largest number of roundings of a term, or the largest possible number if some terms were not examined. ``channels``
    is the number of channels with this order, and ``others`` the number of channels with another. The function counts
    ones exactly up to ``resolution``. If ``resolution`` is less than ``terms``, sums or results were rounded to fewer
    bits than f32 has. ``accumulation`` is the format in which the tree gives the function's bits on random terms.
    ``accumulation`` is None if there is no such format, or if not all terms were examined.
    """

    operator: str
    format: Format
    terms: int
    seen: int = 0
    height: int = 0
    tree: Part | None = None
    calls: int = 0
    channels: int = 0
    others: int = 0
    resolution: int = 0
    impossible: str = ""
    accumulation: Format | None = None

    @property
    def blocks(self) -> tuple[int, ...]:
        """The sizes of the chains, ordered by their first terms."""
        return () if self.tree is None else tuple(chain.size for chain in chains(self.tree))

    @property
    def declared(self) -> int | tuple[int, ...]:
        """The argument for ``check(height=...)``: sizes of few blocks that are added in sequence, else the height."""
        tree = self.tree
        if isinstance(tree, StepwiseSum) and tree.one_by_one and len(tree.parts) <= MAX_BLOCKS:
            sizes = tuple(part.size for part in tree.parts)
            chained = all(isinstance(part, Chain) for part in tree.parts)
            if chained and max(sizes) + len(sizes) - 1 == self.height:
                return sizes
        return self.height

    @property
    def name(self) -> str:
        """The kind of order in a few words, such as "one chain"."""
        return "impossible" if self.tree is None else name(self.tree, self.height)

    def __str__(self) -> str:
        """Return a description of the order, with a drawing."""
        head = f"{self.operator} {self.format}, {self.terms} term{'s' * (self.terms != 1)}"
        if self.tree is None:
            why = "no tree of additions of single products gives these results (Winograd and FFT have no such tree)"
            return f"{head}: IMPOSSIBLE: {self.impossible}; {why} ({self.calls} calls)"
        accumulator = self.accumulation or self.format.accumulator
        bound = gamma(self.height, accumulator.unit)
        whole = self.seen == self.terms
        limit = f"{'' if whole else 'at most '}{self.height}"
        rows = [
            f"{head}: {self.name}",
            *(f"  {line}" for line in draw(self.tree).splitlines()),
            f"  height {limit}: in {accumulator} an error of at most {bound:.3g} sum |x||y|",
            f"  {self.calls} calls; the order of {self.channels} channel{'s' * (self.channels != 1)}",
        ]
        if self.others:
            rows.append(f"  {self.others} others have another order")
        if not whole:
            rows.append(
                f"  {self.seen} of {self.terms} terms were examined: sizes are exact, terms between are assumed"
            )
        if self.resolution < self.terms:
            rows.append(f"  sums or results keep too few bits to count beyond {self.resolution}: counted in parts")
        if self.accumulation is not None:
            rows.append(f"  on random terms the tree in {self.accumulation} gives the same bits")
        elif not binary(self.tree):
            rows.append("  some additions join more than two at once: how these round is not known")
        elif whole:
            rows.append(
                "  on random terms the tree gives other bits in any format: additions are rounded in another way"
            )
        declared = self.declared
        height = declared if isinstance(declared, int) else ",".join(map(str, declared))
        other = self.accumulation not in (None, self.format.accumulator)
        rows.append(f"  declare --height {height}{f' --accumulation {self.accumulation}' * other}")
        return "\n".join(rows)


def probe(
    function: Function,
    operator: str,
    *shapes: Sequence[int],
    operand_type: str | Format = "f32",
    dtype: DType | None = None,
    **attributes: object,
) -> Order:
    """Return the order of a function's sums for a call of ``convgrad.run``, found by calling the function.

    ``function(operator, *inputs, **attributes)`` takes the arguments of ``convgrad.run``, with resolved attributes, and
    returns one array. ``shapes`` has one shape per operand, or the values of a shape operand. ``operand_type`` is the
    type of the operands. ``dtype`` is the type of the result, passed to the function if it is not ``operand_type``.

    All n terms of a sum are 1, except one +M and one -M. M is so large that additions to it are lost. So n - result is
    the number of terms under the tree node that joins +M and -M. Every output channel tests a different pair of terms.

    Raises as ``convgrad.run`` does for these shapes; UnsupportedError if there are no sums, or the function raises.

    >>> from convgrad import run
    >>> layer = {"strides": [1, 1], "dilations": [1, 1]}
    >>> order = probe(run, "ConvolutionBackwardWeights", (1, 24, 24, 4), (1, 24, 24, 64), (1, 1, 4, 64), **layer)
    >>> order.blocks, order.height, order.declared
    ((240, 240, 96), 242, (240, 240, 96))
    """
    op = find(operator)
    fmt = formats.named(operand_type)
    if fmt is None or fmt.name not in VALUES:  # T1
        refuse("T1", operator, f"operand_type must be one of {', '.join(VALUES)}; got {str(operand_type)!r:.200}")
    checked, problem = problem_of_row(op, tuple(shapes), attributes, fmt, dtype)
    masks = masks_of(problem)

    def call(operands: tuple[Array, ...]) -> NDArray[np.float64]:
        return _answer(function, bind(op, checked, problem, dict(zip(op.array_names, operands, strict=False))))

    return _revealed(Asker(call, masks), problem)


def _revealed(asker: Asker, problem: Problem) -> Order:
    """Return the order that a function's results reveal."""
    order = Order(problem.operator, problem.operand_format, asker.terms)
    why = ""
    for bits in RESOLUTIONS:
        if why and 2**bits >= asker.terms:
            continue
        try:
            asker.open(bits)
            tree = _grown(asker)
            accumulation = kept_in(tree, *asker.random(), problem.output_format, problem.operand_format.accumulator)
            break
        except Impossible as error:
            why = why or str(error)
    else:
        if not asker.steady():
            why = f"the same call has other answers each time; {why}"
        return replace(order, calls=asker.calls, impossible=why)
    return replace(
        order,
        seen=tree.examined.size,
        height=tree.height + last_additions(problem),
        tree=parts_of(tree),
        calls=asker.calls,
        channels=asker.columns.size,
        others=asker.others.size,
        resolution=asker.resolution,
        accumulation=accumulation,
    )


def _grown(asker: Asker) -> Tree:
    """Return the tree of a sum: the joins of neighbouring terms usually determine it, and random pairs confirm it."""
    pairs = min(CONFIRMED, 4 * asker.columns.size)
    examined, joins = sample(asker.joins, asker.terms)
    tree = along(asker.terms, examined, joins)
    if tree is not None:
        with suppress(Impossible):
            confirm(asker.joins, tree, pairs)
            return tree
    tree = grow(asker.joins, asker.terms, examined)
    confirm(asker.joins, tree, pairs)
    return tree


def _answer(function: Function, prepared: Prepared) -> NDArray[np.float64]:
    """Return the canonical result of a function, in float64."""
    operator = prepared.problem.operator
    inputs, attributes = arguments(prepared)
    try:
        value = function(operator, *inputs, **attributes)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code may raise anything
        raise UnsupportedError(f"{operator}: the function raised {described(error)}") from error
    array, _ = as_result(value, prepared.problem)
    result: NDArray[np.float64] = prepared.canonical_output(array).astype(np.float64)
    return result

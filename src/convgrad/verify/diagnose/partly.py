"""Defects of loop bounds in some channels only, or in some images: an image that a block of channels does not sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.exact_result import Answer
from convgrad.verify.diagnose.fit import DefectEffect
from convgrad.verify.diagnose.missing import unread, unsummed, unsummed_positions
from convgrad.verify.diagnose.place import axis_words, indices_in_words
from convgrad.verify.diagnose.ranges import ranges
from convgrad.verify.diagnose.sums import DefectSums, Scene, Where

ROWS: tuple[Callable[[Scene], Iterator[DefectEffect]], ...] = (unread, unsummed, unsummed_positions, ranges)


@dataclass(frozen=True, eq=False)
class Partly:
    """The sums ``of`` a defect at the elements of a flat mask, and the exact sums elsewhere."""

    exact: Answer
    of: DefectSums
    mask: NDArray[np.bool_]

    @property
    def work(self) -> int:
        """The number of multiply-adds of all sums."""
        return self.of.work

    def at(self, where: Where) -> Answer:
        """Return flat sums of the elements at these flat indices."""
        is_changed = self.mask[where]
        return self._with(self.of.at(where[is_changed]), where, is_changed)

    def whole(self) -> Answer:
        """Return the sums of all elements."""
        return self._with(self.of.whole(), np.arange(self.mask.size), self.mask)

    def _with(self, other: Answer, where: Where, is_changed: NDArray[np.bool_]) -> Answer:
        """Return the exact sums, with those of ``other`` where ``is_changed``; ``other`` has all sums or only these."""
        exact = self.exact
        value, magnitude, terms = exact.value.ravel()[where], exact.magnitude.ravel()[where], exact.terms.ravel()[where]
        some = is_changed if other.value.size == where.size else np.ones(other.value.size, np.bool_)
        value[is_changed], magnitude[is_changed] = other.value.ravel()[some], other.magnitude.ravel()[some]
        terms[is_changed] = other.terms.ravel()[some]
        return Answer(value, magnitude, terms, exact.integral and other.integral)


def partly(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations of missing or repeated terms at the channels, or images, that have wrong elements.

    Which channels are wrong is read from the result, so the choice among all ranges of channels, or all sets, costs
    evidence.
    """
    chosen, places, names = 0.0, [], set[str]()
    mask = np.ones(scene.got.shape, np.bool_)
    for axis, words in enumerate(axis_words(scene.problem)):
        if words.singular != "image" and "channel" not in words.singular:
            continue
        extent = scene.got.shape[axis]
        some = scene.beyond.any(tuple(a for a in range(scene.got.ndim) if a != axis))
        indices = np.flatnonzero(some)
        if indices.size == extent:
            continue
        is_range = indices[-1] - indices[0] + 1 == indices.size
        chosen += min(2 * np.log2(extent), extent) if is_range else float(extent)
        places.append(indices_in_words(indices, extent, words))
        names.add("images" if words.singular == "image" else "channels")
        mask &= some.reshape([-1 if a == axis else 1 for a in range(scene.got.ndim)])
    if not places:
        return
    some_of, where = " and ".join(sorted(names)), " and ".join(places)
    for rows in ROWS:
        for effect in rows(scene):
            sums = Partly(scene.exact, effect.sums, mask.ravel())
            name, detail = f"{effect.name} in some {some_of}", f"{effect.detail}, in {where}"
            yield DefectEffect(name, detail, sums, chosen=effect.chosen + chosen)

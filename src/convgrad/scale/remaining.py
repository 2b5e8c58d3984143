"""What is left of a cut where some is finished: the slabs behind, of whatever cut it was finished by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from convgrad.spec.problem import Problem
from convgrad.spec.slabs import Slab, slab_of


def remaining(problem: Problem, slabs: Iterable[Slab], images: int, rows: int) -> Iterator[Slab]:
    """Yield what of slabs in order is not among the first ``images``, nor the first ``rows`` of the image behind them.

    Rows are those of the swept tensor's first axis, fewer than an image has. A slab that is cut through by what is
    finished is cut there.

    >>> from convgrad.notation import problem
    >>> from convgrad.spec.slabs import whole
    >>> of = problem("BWD_D f32 NXC mb8ic4iw9oc6ow9kw3pw1")
    >>> cut = [slab_of(of, range(0, 4), whole(of)), slab_of(of, range(4, 8), whole(of))]
    >>> [(slab.images, slab.box) for slab in remaining(of, cut, 5, 6)]
    [(range(5, 6), (range(6, 9),)), (range(6, 8), (range(0, 9),))]
    """
    for slab in slabs:
        begun = images in slab.images and rows > 0
        if begun and max(rows, slab.box[0].start) < slab.box[0].stop:
            box = (range(max(rows, slab.box[0].start), slab.box[0].stop), *slab.box[1:])
            yield slab_of(problem, range(images, images + 1), box)
        first = max(slab.images.start, images + begun)
        if first < slab.images.stop:
            here = range(first, slab.images.stop)
            yield slab if here == slab.images else slab_of(problem, here, slab.box)

"""The diagnosis of a wrong result: where its wrong elements are, and the defect's name if it is recognised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convgrad.verify.declared import DeclaredResult
from convgrad.verify.diagnose.fit import WHOLE, Fit
from convgrad.verify.diagnose.marks import marked
from convgrad.verify.diagnose.mutants import not_tried, recognised
from convgrad.verify.diagnose.place import beside, place
from convgrad.verify.diagnose.replay import mixed
from convgrad.verify.diagnose.running import running
from convgrad.verify.diagnose.sums import Scene
from convgrad.verify.judge.names import MULTIPLES
from convgrad.verify.reference import Reference
from convgrad.verify.verdict import Defect


@dataclass(frozen=True)
class Diagnosis:
    """The places where a result is wrong, in words, and the defects recognised."""

    where: str = ""
    defects: tuple[Defect, ...] = ()


def diagnose(
    result: DeclaredResult, beyond: NDArray[np.bool_], reference: Reference, scattered: bool = False
) -> Diagnosis:
    """Return the diagnosis of a result; ``beyond`` is a mask of its wrong elements.

    If the groups are the ``scattered`` blocks of a sample, defects of many sums are looked for in one block, which
    takes less time.
    """
    got, problem = result.got, result.problem
    with np.errstate(all="ignore"):
        near = beside(beyond, np.abs(got.astype(np.float64) - reference.value), problem)
    where = "; ".join(filter(None, (place(beyond, reference.terms, problem), near)))
    with np.errstate(all="ignore"):  # wrong results may overflow or contain NaN
        scene = Scene(got, beyond, reference, problem, result.operands, result.old, result.declared.accumulation)
        one_block = scattered and scene.conv is not None and scene.conv.multiply_adds > WHOLE
        defects, left_out = _recognised(scene.of_worst_group() if one_block else scene)
    return Diagnosis(f"{where}; not tried on operands so large: {left_out}" if left_out else where, defects)


def _recognised(scene: Scene) -> tuple[tuple[Defect, ...], str]:
    """Return the defects recognised; if there are none, also the rows of ``mutants.TABLE`` that were not tried."""
    fits = recognised(scene)
    if not fits:
        defects = tuple(marked(scene)) or tuple(running(scene)) or tuple(mixed(scene))
        return defects, "" if defects else ", ".join(not_tried(scene))
    if fits[0].chosen or fits[0].name == MULTIPLES:  # a fitted constant explains any result whose elements are equal
        fits = [*(Fit(defect.name, defect.detail, 0.0, chosen=True) for defect in running(scene)), *fits]
    first, *others = fits
    others = [other for other in others if other.name != first.name and (first.chosen or not other.chosen)]
    also = dict.fromkeys(other.name for other in others)
    words = [first.detail] if first.detail else []
    words += [f"also fits: {', '.join(also)}"] if also else []
    return (Defect(first.name, "; ".join(words)),), ""

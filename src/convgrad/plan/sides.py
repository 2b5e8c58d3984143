"""One operand as a tile meets it: what lies next to what, how far positions are apart, whether it is read in place."""

from __future__ import annotations

from convgrad.plan.machine import Isa
from convgrad.plan.rates import MOST_APART_BYTES
from convgrad.plan.recipe import CHANNELS, POSITIONS, STRIDED
from convgrad.plan.view import View, collapsed, per_group
from convgrad.spec.problem import Problem


def inner_step(view: View, tensor: str) -> int:
    """Return the step from a position to the next: of all positions where they are one row and lie so."""
    extents = tuple(a.dst for a in view.conv.axes)
    strides = view.strides(tensor)[2:]
    together = collapsed(extents, strides) if view.pointwise else None
    return strides[-1] if together is None else together


def layout(view: View, tensor: str, size: int) -> str:
    """Return how a (N, C, X...) array lies, by what is next to what; one channel lies as you like."""
    shape = view.conv.src_shape if tensor == "src" else view.conv.dst_shape
    if view.strides(tensor)[1] == size or shape[1] == 1:
        return CHANNELS
    return POSITIONS if inner_step(view, tensor) == size else STRIDED


def readable_in_place(problem: Problem, view: View, tensor: str) -> bool:
    """Tiles can read an operand where it is if f32 channels are neighbours and positions of a row one step apart."""
    size = problem.operand_format.dtype.itemsize
    if problem.operand_format.name != "f32" or layout(view, tensor, size) != CHANNELS:
        return False
    extents = tuple(a.dst for a in view.conv.axes)
    return not view.pointwise or collapsed(extents, view.strides(tensor)[2:]) is not None


def lanes_in_place(problem: Problem, view: View, isa: Isa, lanes: str, vectors: int) -> bool:
    """Tiles can read lanes where they are in whole panels only, and should where positions lie close together."""
    whole = per_group(view)[lanes] % (vectors * isa.lanes) == 0
    return whole and abs(inner_step(view, lanes)) <= MOST_APART_BYTES and readable_in_place(problem, view, lanes)

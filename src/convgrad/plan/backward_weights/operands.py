"""An operand of a weight gradient as a tile meets it: what lies next to what, how far terms are apart, if in place."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.formats import F32
from convgrad.plan.backward_weights.nest import View, collapsed, per_group
from convgrad.plan.backward_weights.recipe import KernelSpec, Read
from convgrad.plan.constants import MAX_B_STRIDE_BYTES
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, SPATIAL, STRIDED, Operands
from convgrad.spec.problem import Problem


@dataclass(frozen=True)
class Side:
    """One operand as a tile meets it. From an item, a term, a group, an image to the next there are so many bytes.

    An item is a channel here, a term a position.
    """

    tensor: str
    read: Read
    items: int  # of a group
    item: int
    term: int
    group: int
    image: int
    step: int  # from a term of the operand to the next as the tile reads it: packed, or in place
    stride: int  # terms of the operand from a term of the sum to the next
    out: int  # from what an item becomes in the output to the next


def sides_of(view: View, spec: KernelSpec, operands: Operands) -> tuple[Side, Side]:
    """Return the sides that a kernel's rows and lanes are from."""
    rows, lanes = operands
    return _side(view, spec, spec.rows, rows), _side(view, spec, spec.lanes, lanes)


def _side(view: View, spec: KernelSpec, read: Read, tensor: str) -> Side:
    (image, item, *_), term, items = view.strides(tensor), inner_step(view, tensor), per_group(view)[tensor]
    step = term if read.in_place else spec.term_bytes(read)
    stride = view.conv.axes[-1].stride if tensor == "src" else 1
    out = dict(zip(("dst", "src"), view.weights_strides, strict=False))[tensor]
    return Side(tensor, read, items, item, term, items * item, image, step, stride, out)


def inner_step(view: View, tensor: str) -> int:
    """Return the step from a position to the next: of all positions where they are one row and lie so."""
    of_all = _step_of_all(view, tensor) if view.pointwise else None
    return view.strides(tensor)[-1] if of_all is None else of_all


def evenly_apart(view: View, tensor: str) -> bool:
    """Return whether the positions of a row are one step apart: of all, where they are one row."""
    return not view.pointwise or _step_of_all(view, tensor) is not None


def _step_of_all(view: View, tensor: str) -> int | None:
    return collapsed(tuple(axis.dst for axis in view.conv.axes), view.strides(tensor)[2:])


def contiguous_axis(problem: Problem, view: View, tensor: str) -> str:
    """Return what lies next to each other of src or dst; one channel lies as you like."""
    size, conv = problem.operand_format.dtype.itemsize, view.conv
    channels = conv.src_channels if tensor == "src" else conv.dst_channels
    if view.strides(tensor)[1] == size or channels == 1:
        return CHANNELS
    return SPATIAL if inner_step(view, tensor) == size else STRIDED


def readable_in_place(problem: Problem, view: View, tensor: str) -> bool:
    """Tiles can read an operand where it is if f32 channels are neighbours and positions of a row one step apart."""
    by_channels = contiguous_axis(problem, view, tensor) == CHANNELS
    return problem.operand_format is F32 and by_channels and evenly_apart(view, tensor)


def lanes_in_place(problem: Problem, view: View, isa: Isa, lanes: str, vectors: int) -> bool:
    """Tiles can read lanes where they are in whole panels only, and should where positions lie close together."""
    whole = per_group(view)[lanes] % (vectors * isa.lanes) == 0
    return whole and abs(inner_step(view, lanes)) <= MAX_B_STRIDE_BYTES and readable_in_place(problem, view, lanes)

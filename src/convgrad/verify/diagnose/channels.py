"""Defects of groups and memory order: channels of another group, permuted axes, ignored strides of a view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array
from convgrad.spec.layouts import axis_order
from convgrad.spec.operators import Tensor
from convgrad.verify.diagnose.fit import DefectEffect
from convgrad.verify.diagnose.make import Change, edited, picked
from convgrad.verify.diagnose.sums import Instead, Scene

RANK = 5  # maximum number of axes whose permutations are tried

# Wrong channels of groups, by description: the defect's name, and the function from all groups to those used instead.
BLOCKS: dict[str, tuple[str, Callable[[NDArray[np.intp]], NDArray[np.intp]]]] = {
    "group 0 for all": ("group offset wrong", np.zeros_like),
    "in reverse order": ("groups exchanged", lambda g: g[::-1]),
    "the next group's": ("group offset wrong", lambda g: np.roll(g, -1)),
    "the group's before": ("group offset wrong", lambda g: np.roll(g, 1)),
}


def groups(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which groups of a tensor use channels of another group, or channels are interleaved."""
    conv = scene.conv
    if conv is None or conv.groups == 1:
        return
    for tensor, axis in (("src", 1), ("dst", 1), ("weights", 0)):
        for words, order in _orders(scene, tensor):
            name, detail = words
            change = _taken(order, axis)
            if tensor == scene.problem.output:
                yield DefectEffect(name, f"in the result, {detail}", picked(scene, change))
            else:
                yield DefectEffect(name, f"in {scene.said(tensor)}, {detail}", edited(scene, {tensor: change}))


def _orders(scene: Scene, tensor: str) -> Iterator[tuple[tuple[str, str], NDArray[np.intp]]]:
    conv = scene.conv
    assert conv is not None
    channels = conv.src_channels if tensor == "src" else conv.dst_channels
    per_group = channels // conv.groups
    blocks = np.arange(channels).reshape(conv.groups, per_group)
    for words, (name, change) in BLOCKS.items():
        yield (name, words), blocks[change(np.arange(conv.groups))].ravel()
    if per_group > 1:
        yield ("groups interleaved", "channel c taken as one of group c mod g"), blocks.T.ravel()
        dealt = np.arange(channels).reshape(per_group, conv.groups).T.ravel()
        yield ("groups interleaved", "groups taken as every g-th channel"), dealt


def _taken(order: NDArray[np.intp], axis: int) -> Change:
    return lambda array: np.take(array, order, axis)


def layouts(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which an operand is read, or the result written, with its axes in another memory order."""
    tensors = [(t, layout) for t, layout in zip(scene.problem.operands, scene.problem.layouts, strict=False)]
    for tensor, layout in [(scene.problem.output, scene.problem.layouts[-1]), *tensors]:
        rank = scene.got.ndim if tensor == scene.problem.output else scene.tensors[tensor].ndim
        if tensor == "bias" or not 2 <= rank <= RANK:
            continue
        for order in permutations(range(rank)):
            if order == tuple(range(rank)):
                continue
            change = _as_if(order, layout, rank)
            shape = ", ".join(map(str, order))
            if tensor == scene.problem.output:
                yield DefectEffect(
                    "wrong layout",
                    f"the result written with axes ({shape})",
                    picked(scene, _undone(order, layout, rank)),
                )
            else:
                yield DefectEffect(
                    "wrong layout", f"{scene.said(tensor)} read with axes ({shape})", edited(scene, {tensor: change})
                )


def _as_if(order: tuple[int, ...], layout: str, rank: int) -> Change:
    """Return a function that reads an array's memory as if its axes were in another order."""

    def change(canonical: Array) -> Array:
        back = np.argsort(axis_order(layout, rank))
        lying = canonical.transpose(back)
        taken = np.ascontiguousarray(lying).reshape([lying.shape[a] for a in order])
        return taken.transpose(np.argsort(order)).transpose(axis_order(layout, rank))

    return change


def _undone(order: tuple[int, ...], layout: str, rank: int) -> Change:
    """Return a function that rearranges a result as if it had been written with its axes in another order."""

    def change(canonical: Array) -> Array:
        lying = canonical.transpose(np.argsort(axis_order(layout, rank)))
        written = np.ascontiguousarray(lying.transpose(order)).reshape(lying.shape)
        return written.transpose(axis_order(layout, rank))

    return change


def strides(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which a view is read as contiguous, from its own start or the start of its memory."""
    for tensor, layout, view in zip(scene.problem.operands, scene.problem.layouts, scene.operands, strict=False):
        rank = view.ndim
        lying = view if tensor == "bias" else view.transpose(np.argsort(axis_order(layout, rank)))
        if lying.flags.c_contiguous and _owner(lying).size == lying.size:
            continue
        owner = _owner(lying)
        if not owner.flags.forc or owner.dtype != lying.dtype:
            continue
        flat = owner.ravel(order="K")
        start = (lying.ctypes.data - flat.ctypes.data) // lying.itemsize
        for first, name in {0: "offset of a view ignored", start: "strided view read as contiguous"}.items():
            contiguous = lying.flags.c_contiguous
            if first + lying.size > flat.size or first < 0 or (contiguous and first == start):
                continue
            taken = flat[first : first + lying.size].reshape(lying.shape)
            other = taken if tensor == "bias" else taken.transpose(axis_order(layout, rank))
            yield DefectEffect(name, scene.said(tensor), edited(scene, {tensor: _constant(other)}))


def _constant(array: Array) -> Change:
    return lambda _: array


def _owner(array: Array) -> Array:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def operands_swapped(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations with exchanged operands, or with forward and backward_data exchanged."""
    conv = scene.conv
    if conv is None:
        return
    tensors, problem = scene.tensors, scene.problem
    if problem.solves_for == "weights" and conv.src_shape == conv.dst_shape:
        yield DefectEffect(
            "operands exchanged", "", edited(scene, {"src": lambda _: tensors["dst"], "dst": lambda _: tensors["src"]})
        )
    if problem.solves_for in ("dst", "src") and conv.src_shape == conv.dst_shape:
        other: Tensor = "src" if problem.solves_for == "dst" else "dst"
        operands = tuple(problem.solves_for if t == other else t for t in problem.operands)
        turned = _replaced(scene, other, operands)
        name = "forward instead of the gradient" if other == "dst" else "data gradient instead of the forward"
        yield DefectEffect(name, "", turned)


def _replaced(scene: Scene, solves_for: Tensor, operands: tuple[Tensor, ...]) -> Instead:
    problem = replace(scene.problem, solves_for=solves_for, operands=operands)
    return Instead(problem, tuple(scene.operands), scene.got.shape, scene.old if problem.accumulate else None)


def shifted(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which results are shifted by one index along an axis, cyclically or with zeros moved in."""
    for axis in range(scene.got.ndim):
        if scene.got.shape[axis] < 2:
            continue
        for by in (1, -1):
            for around in (True, False):
                words = f"canonical axis {axis} by {by:+}{'' if around else ', zeros moved in'}"
                yield DefectEffect("result shifted", words, picked(scene, _shift(axis, by, around)))


def _shift(axis: int, by: int, around: bool) -> Callable[[NDArray[np.intp]], NDArray[np.intp]]:
    def change(places: NDArray[np.intp]) -> NDArray[np.intp]:
        rolled = np.roll(places, by, axis)
        if not around:
            np.moveaxis(rolled, axis, 0)[0 if by > 0 else -1] = -1
        return rolled

    return change

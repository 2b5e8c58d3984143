"""The problems that the operators pose, by the types and shapes of their tensors, or the errors of a rule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from convgrad.arrays.libraries.torch import formats_of
from convgrad.cached import remembered
from convgrad.formats import Format
from convgrad.functional.call import REMEMBERED, problem_of_row
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.torch.attributes import OpAttributes
from convgrad.torch.extents import Ints, check_output_padding, check_unread, pads_of, rests_of, transposed_extents

Kind = tuple[torch.dtype, Ints]  # a tensor's type and shape

FORMATS = formats_of(torch)
_LAYOUTS = {"data_format": "NCX"}
_WEIGHTS = {False: "OIX", True: "IOX"}  # layouts by Operator.transposed; both describe the same memory


@remembered(REMEMBERED, slice(1, None))
def dst_problem(kinds: tuple[Kind, ...], layer: OpAttributes) -> Problem:
    """Return the problem of ``forward`` for tensors of these types and shapes, or raise the errors of Convolution."""
    begin, end = pads_of(layer.pads, kinds[1][1][2:], layer.dilations)
    if not end or min(end) >= 0:
        return _problem("Convolution", kinds, layer, (begin, end))
    ends, more = _behind([-pad for pad in end])
    return _problem("ConvTransposeBackwardData", kinds, layer, (begin, ends), more)


@remembered(REMEMBERED, slice(1, None))
def transposed_problem(kinds: tuple[Kind, ...], layer: OpAttributes, extents: Ints | None) -> Problem:
    """Return the problem of ``data_gradient``, or raise the errors of ConvTranspose."""
    small, kernel = kinds[0][1][2:], kinds[1][1][2:]
    pads = pads_of(layer.pads, kernel, layer.dilations)
    if extents is None:
        more = layer.output_padding or (0,) * len(kernel)
        check_output_padding(len(kernel), layer.strides, pads[1], more, layer.dilations)
        extents = transposed_extents(small, kernel, layer.strides, pads, more, layer.dilations)
    else:
        check_unread("ConvTranspose", (extents, small, kernel), layer.strides, pads, layer.dilations)
    return src_problem(kinds, layer, extents)


@remembered(REMEMBERED, slice(1, None))
def src_problem(kinds: tuple[Kind, ...], layer: OpAttributes, extents: Ints) -> Problem:
    """Return the problem of a data gradient with these extents, or raise the errors of ConvTranspose."""
    (_, small), (_, weights) = kinds[:2]
    begin, _ = pads_of((layer.pads_begin, layer.pads_begin), weights[2:], layer.dilations)
    ends, more = _behind(rests_of(extents, small[2:], weights[2:], layer.strides, begin, layer.dilations))
    return _problem("ConvTranspose", kinds, layer, (begin, ends), more)


@remembered(REMEMBERED, slice(1, None))
def kernel_problem(kinds: tuple[Kind, ...], layer: OpAttributes, kernel: Ints) -> Problem:
    """Return the problem of ``weight_gradient``, or raise the errors of ConvTransposeBackwardWeights."""
    (_, small), (_, large) = kinds
    pads = pads_of(layer.pads, kernel, layer.dilations)
    problem = weights_problem(kinds, layer, kernel)
    extents = large[2:], small[2:], kernel
    check_unread("ConvTransposeBackwardWeights", extents, layer.strides, pads, layer.dilations)
    return problem


@remembered(REMEMBERED, slice(1, None))
def weights_problem(kinds: tuple[Kind, ...], layer: OpAttributes, kernel: Ints) -> Problem:
    """Return the problem of a weight gradient with this kernel, or raise the errors of ConvTransposeBackwardWeights."""
    (_, small), (_, large) = kinds
    begin, _ = pads_of((layer.pads_begin, layer.pads_begin), kernel, layer.dilations)
    ends, more = _behind(rests_of(large[2:], small[2:], kernel, layer.strides, begin, layer.dilations))
    shape = (*small[1:2], *(channels // layer.groups for channels in large[1:2]), *kernel)
    return _problem("ConvTransposeBackwardWeights", kinds, layer, (begin, ends), more, (shape,))


@lru_cache(maxsize=REMEMBERED)
def bias_problem(kinds: tuple[Kind, ...], _: OpAttributes) -> Problem:
    """Return the problem of ``bias_gradient``, which has no attributes, or raise the errors of BiasAddBackward."""
    op = find("BiasAddBackward")
    return problem_of_row(op, (kinds[0][1],), _LAYOUTS, common("BiasAddBackward", kinds))[1]


def _behind(rests: Sequence[int]) -> tuple[Ints, dict[str, object]]:
    """Return the results of ``rests_of`` as two attributes: the pads at the end, and the output_padding in a dict."""
    return tuple(max(0, -remainder) for remainder in rests), {
        "output_padding": [max(0, remainder) for remainder in rests]
    }


def _problem(
    name: str,
    kinds: tuple[Kind, ...],
    layer: OpAttributes,
    pads: tuple[Ints, Ints],
    more: dict[str, object] | None = None,
    shape_operands: tuple[Ints, ...] = (),
) -> Problem:
    op = find(name)
    attributes = {
        "strides": list(layer.strides),
        "pads_begin": list(pads[0]),
        "pads_end": list(pads[1]),
        "dilations": list(layer.dilations),
        "groups": layer.groups,
        "weights_format": _WEIGHTS[op.transposed],
    }
    shapes = (*(tuple(shape) for _, shape in kinds), *shape_operands)
    return problem_of_row(op, shapes, attributes | _LAYOUTS | (more or {}), common(name, kinds))[1]


def common(name: str, kinds: tuple[Kind, ...]) -> Format:
    """Return the number format of all tensors; raise by rule T1 or T2 if it is unsupported or not the same."""
    names = find(name).array_names
    for operand, (dtype, _) in zip(names, kinds, strict=False):
        if dtype not in FORMATS:  # T1
            refuse("T1", name, f"{operand} must be a tensor of {', '.join(map(str, FORMATS))}; got {dtype}")
    if len({dtype for dtype, _ in kinds}) > 1:  # T2
        got = ", ".join(f"{operand} {dtype}" for operand, (dtype, _) in zip(names, kinds, strict=False))
        refuse("T2", name, f"all operands must have one type; got {got}")
    return FORMATS[kinds[0][0]]

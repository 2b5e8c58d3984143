"""The sizes that callers give to functions of gradients: whether they fit, and how the operators take them."""

from __future__ import annotations

import torch
from torch import Tensor

from convgrad.cached import remembered
from convgrad.formats import F32
from convgrad.functional.call import REMEMBERED, problem_from_shapes
from convgrad.spec.rules import refuse
from convgrad.torch.extents import Ints, unread
from convgrad.torch.recorded import numbers, of_shape, sizes_are_recorded


def kernel_of(size: Ints, like: Tensor) -> tuple[Tensor | None, Ints | None]:
    """Return the two arguments of the operator from which it takes the extents of the kernel."""
    return (of_shape(size, like), None) if sizes_are_recorded() else (None, size[2:])


def ends_of(large: Ints, small: Ints, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints) -> Ints:
    """Return the pads at the end of the convolution that has these sizes.

    They are below ``pads`` by the transposed layer's output_padding, as far as it is a multiple of the stride: the
    remainder is what a convolution with a stride does not read.
    """
    more = unread(large[2:], small[2:], kernel[2:], strides, (pads, pads), dilations)
    return tuple([pad - extra // s * s for pad, extra, s in zip(pads, more, strides, strict=True)])


def check(operator: str, shapes: tuple[Ints, ...], strides: Ints, pads: Ints, dilations: Ints, groups: int) -> None:
    """Raise the operator's error if no layer with these attributes has tensors of these shapes.

    Symbols are not checked, because the rules would fix their values: `of_size` and the kernels check the sizes.
    """
    lists = tuple(map(numbers, (*shapes, strides, pads, dilations, (groups,))))
    if not _symbolic(lists):
        _known_to_fit(operator, lists[:3], *lists[3:])


def _symbolic(lists: tuple[Ints, ...]) -> bool:
    return torch.compiler.is_compiling() or any(isinstance(number, torch.SymInt) for sizes in lists for number in sizes)


def of_size(name: str, result: Tensor, size: Ints) -> Tensor:
    """Return the result; raise if a size that `check` did not check is not that of the result."""
    if _symbolic((size,)) and tuple(result.shape) != size:  # G4
        refuse("G4", name, f"the tensors need size {tuple(result.shape)}; got {size}")
    return result


@remembered(REMEMBERED, slice(1, None))
def _known_to_fit(
    operator: str, shapes: tuple[Ints, ...], strides: Ints, pads: Ints, dilations: Ints, groups: Ints
) -> None:
    attributes = {
        "strides": list(strides),
        "pads_begin": list(pads),
        "pads_end": list(pads),
        "dilations": list(dilations),
        "groups": groups[0],
        "data_format": "NCX",
        "weights_format": "IOX" if operator.startswith("ConvTranspose") else "OIX",
    }
    problem_from_shapes(operator, shapes, attributes, F32)

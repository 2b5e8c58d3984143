"""The operator table: one row per operator and generation of its name.

A row maps each operand and the output to a tensor of the *underlying convolution*. A transposed operator is a
convolution with src and dst exchanged: the ``src`` of ConvTranspose is the convolution's dst, and vice versa.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

from convgrad.cached import cached_property
from convgrad.spec.rules import refuse

Tensor = Literal["src", "dst", "weights", "bias"]
SolvesFor = Literal["dst", "src", "weights", "bias_add", "bias"]
AttributeType = Literal["s64", "s64[]", "string"]


@dataclass(frozen=True)
class Port:
    """An operand or the output of an operator. A shape operand (``is_shape``) contains the extents of ``tensor``."""

    name: str
    tensor: Tensor
    required: bool = True
    is_shape: bool = False


@dataclass(frozen=True)
class Attribute:
    """An attribute of an operator. ``means`` is the attribute's name in the current generation, which the code uses."""

    name: str
    type: AttributeType
    means: str
    required: bool = False
    default: int | str | None = None
    choices: tuple[str, ...] = ()
    minimum: int = 0
    per_axis: bool = False
    is_pad: bool = False  # absent pads are zeros, unless the operator calculates them
    spellings: tuple[tuple[str, str], ...] = ()  # (spelling in lower case, choice)


@dataclass(frozen=True, eq=False)  # rows are compared by identity, for speed
class Operator:
    """A row of the table: an operator under one name."""

    name: str
    generations: tuple[str, ...]
    solves_for: SolvesFor
    transposed: bool
    operands: tuple[Port, ...]
    output: Port
    attributes: tuple[Attribute, ...]
    shape_rule: str
    document: str
    spatial_shape: bool = False  # the shape operand may have only the spatial extents
    # Absent pads follow from the extents, because the document says that they "may be omitted, in which case pads are
    # calculated automatically". A data gradient of a given shape also has calculated pads with auto_pad same.
    calculates_pads: bool = False

    def attribute(self, means: str) -> Attribute | None:
        """Return the attribute that has this meaning, under any name; None if the operator does not have it."""
        return next((a for a in self.attributes if a.means == means), None)

    @cached_property
    def array_names(self) -> tuple[str, ...]:
        """The names of the operands that are arrays, not shapes."""
        return tuple(port.name for port in self.operands if not port.is_shape)

    @cached_property
    def operand_counts(self) -> range:
        """The numbers of operands that the operator takes. Optional operands come last."""
        return range(sum(p.required for p in self.operands), len(self.operands) + 1)


GENERATIONS: Mapping[str, str] = MappingProxyType(
    {
        "G0": "oneDNN Graph specification 0.7 to 0.9",
        "G1": "oneDNN Graph specification 1.0-alpha",
        "G2": "the specification of ConvolutionBackpropWeights-1",
        "G3": "oneDNN 3.0 and later",
    }
)

S64_MAX = 2**63 - 1  # the largest integer that an attribute or an extent can be
LARGEST_RANK = 64  # of arrays, and so the most items that an attribute can have
CONV_WEIGHTS = ("XIO", "OIX")
TRANSPOSE_WEIGHTS = ("XOI", "IOX")
VERSION = "-1"  # the suffix of names of the older generations
AUTO_PADS = ("none", "same_upper", "same_lower", "valid")
AUTO_PAD_SPELLINGS = (*((choice, choice) for choice in AUTO_PADS), ("notset", "none"), ("explicit", "none"))

DATA_FORMAT = Attribute("data_format", "string", "data_format", default="NXC", choices=("NXC", "NCX"))


def _per_axis(name: str, minimum: int, required: bool = False, is_pad: bool = False) -> Attribute:
    return Attribute(name, "s64[]", name, required, minimum=minimum, per_axis=True, is_pad=is_pad)


def _weights_format(name: str, choices: tuple[str, ...]) -> Attribute:
    return Attribute(name, "string", "weights_format", default=choices[0], choices=choices)


_COMMON = (
    _per_axis("strides", 1, required=True),
    _per_axis("pads_begin", 0, is_pad=True),
    _per_axis("pads_end", 0, is_pad=True),
    _per_axis("dilations", 1, required=True),
    Attribute("auto_pad", "string", "auto_pad", default="none", choices=AUTO_PADS, spellings=AUTO_PAD_SPELLINGS),
    Attribute("groups", "s64", "groups", default=1, minimum=1),
    DATA_FORMAT,
)
_PADDING = _per_axis("output_padding", 0)
_CONV = (*_COMMON, _weights_format("weights_format", CONV_WEIGHTS))
_TRANSPOSE = (*_COMMON, _weights_format("weights_format", TRANSPOSE_WEIGHTS), _PADDING)
_OLD_CONV = (*_COMMON, _weights_format("filter_format", CONV_WEIGHTS))
_OLD_TRANSPOSE = (*_COMMON, _weights_format("filter_format", TRANSPOSE_WEIGHTS), _PADDING)
_WEIGHTS_SHAPE = Attribute("weights_shape", "s64[]", "weights_shape", minimum=1)
_FILTER_SHAPE = Attribute("filter_shape", "s64[]", "weights_shape", minimum=1)
_DST_SHAPE = Attribute("dst_shape", "s64[]", "dst_shape")
_OUTPUT_SHAPE = Attribute("output_shape", "s64[]", "dst_shape")

_BIAS = Port("bias", "bias", required=False)

_BACKWARD_WEIGHTS_DOC = "ConvolutionBackwardWeights (oneDNN developer guide)"
_TRANSPOSE_DOC = "ConvTransposeBackwardWeights (oneDNN developer guide)"
_DATA_DOC = "ConvolutionBackpropData-1 (specification 1.0-alpha)"
_FILTERS_DOC = "ConvolutionBackpropFilters-1 (specification 1.0-alpha)"
_WEIGHTS_DOC = "ConvolutionBackpropWeights-1"
_ALPHA = "oneDNN Graph specification 1.0-alpha"

_FORWARD = "O = floor((I + P - E)/s) + 1"
_DATA = "If you omit it, I = s(O - 1) + E - P + op. If auto_pad is same_upper or same_lower, I = sO instead"
_TRANSPOSED = "L = s(l - 1) + E - P + op"
_TRANSPOSED_BACK = "l = floor((L + P - E)/s) + 1. If you pass output_padding, L must be s(l - 1) + E - P + op"

OPERATORS: tuple[Operator, ...] = (
    Operator(
        "Convolution", ("G3",), "dst", False,
        (Port("src", "src"), Port("weights", "weights"), _BIAS), Port("dst", "dst"),
        _CONV, _FORWARD, _BACKWARD_WEIGHTS_DOC,
    ),
    Operator(
        "ConvolutionBackwardData", ("G3",), "src", False,
        (Port("diff_dst", "dst"), Port("weights", "weights"), Port("dst_shape", "src", required=False, is_shape=True)),
        Port("diff_src", "src"),
        (*_CONV, _PADDING, _DST_SHAPE),
        f"dst_shape. {_DATA}", _DATA_DOC,
    ),
    Operator(
        "ConvolutionBackwardWeights", ("G3",), "weights", False,
        (Port("src", "src"), Port("diff_dst", "dst"), Port("weights_shape", "weights", required=False, is_shape=True)),
        Port("diff_weights", "weights"),
        (*_CONV, _WEIGHTS_SHAPE),
        "weights_shape, which you must pass as an operand or attribute", _BACKWARD_WEIGHTS_DOC,
    ),
    Operator(
        "ConvTranspose", ("G3",), "src", True,
        (Port("src", "dst"), Port("weights", "weights"), _BIAS), Port("dst", "src"),
        _TRANSPOSE, _TRANSPOSED, _TRANSPOSE_DOC,
    ),
    Operator(
        "ConvTransposeBackwardData", ("G3",), "dst", True,
        (Port("diff_dst", "src"), Port("weights", "weights")), Port("diff_src", "dst"),
        _TRANSPOSE,
        _TRANSPOSED_BACK, _TRANSPOSE_DOC,
    ),
    Operator(
        "ConvTransposeBackwardWeights", ("G3",), "weights", True,
        (Port("src", "dst"), Port("diff_dst", "src"), Port("weights_shape", "weights", required=False, is_shape=True)),
        Port("diff_weights", "weights"),
        (*_TRANSPOSE, _WEIGHTS_SHAPE), "weights_shape, which you must pass as an operand or attribute", _TRANSPOSE_DOC,
    ),
    Operator(
        "BiasAdd", ("G3",), "bias_add", False,
        (Port("src", "src"), Port("bias", "bias")), Port("dst", "dst"),
        (DATA_FORMAT,), "the shape of src", "BiasAdd (oneDNN developer guide)",
    ),
    Operator(
        "BiasAddBackward", ("G3",), "bias", False,
        (Port("diff_dst", "dst"),), Port("diff_bias", "bias"),
        (DATA_FORMAT,), "(C,), where C is the number of channels", "BiasAddBackward (oneDNN developer guide)",
    ),
    Operator(
        "Convolution-1", ("G0", "G1", "G2"), "dst", False,
        (Port("input", "src"), Port("filter", "weights"), _BIAS), Port("output", "dst"),
        _OLD_CONV, _FORWARD, _FILTERS_DOC,
    ),
    Operator(
        "ConvolutionBackpropData-1", ("G0", "G1"), "src", False,
        (Port("data", "dst"), Port("filter", "weights"), Port("output_shape", "src", required=False, is_shape=True)),
        Port("output", "src"),
        (*_OLD_CONV, _PADDING, _OUTPUT_SHAPE),
        f"output_shape, which may have only the spatial extents. {_DATA}", _DATA_DOC,
        spatial_shape=True, calculates_pads=True,
    ),
    Operator(
        "ConvolutionBackpropFilters-1", ("G1",), "weights", False,
        (Port("input_forward", "src"), Port("output_delta", "dst"),
         Port("filter_shape", "weights", required=False, is_shape=True)),
        Port("filter_delta", "weights"),
        (*_OLD_CONV, _FILTER_SHAPE), "filter_shape, which you must pass as an operand or attribute", _FILTERS_DOC,
        calculates_pads=True,
    ),
    Operator(  # same name as the row above, other order of operands: the second is a 1-D integer array
        "ConvolutionBackpropFilters-1", ("G0",), "weights", False,
        (Port("input", "src"), Port("filters_shape", "weights", is_shape=True), Port("output_delta", "dst")),
        Port("filter_delta", "weights"),
        _OLD_CONV, "filters_shape", "oneDNN Graph specification 0.7",
        calculates_pads=True,
    ),
    Operator(
        "ConvolutionBackpropWeights-1", ("G2",), "weights", False,
        (Port("src", "src"), Port("diff_dst", "dst"), Port("weights_shape", "weights", required=False, is_shape=True)),
        Port("diff_weights", "weights"),
        (*_CONV, _WEIGHTS_SHAPE), "weights_shape, which you must pass as an operand or attribute", _WEIGHTS_DOC,
        calculates_pads=True,
    ),
    Operator(
        "ConvTranspose-1", ("G0", "G1"), "src", True,
        (Port("input", "dst"), Port("filter", "weights"), _BIAS), Port("output", "src"),
        _OLD_TRANSPOSE, _TRANSPOSED, _ALPHA,
    ),
    Operator(
        "ConvTransposeBackpropData-1", ("G1",), "dst", True,
        (Port("output_delta", "src"), Port("filter", "weights")), Port("input_delta", "dst"),
        _OLD_TRANSPOSE,
        _TRANSPOSED_BACK, _ALPHA,
    ),
    Operator(
        "ConvTransposeBackpropFilters-1", ("G1",), "weights", True,
        (Port("input", "dst"), Port("output_delta", "src"),
         Port("filter_shape", "weights", required=False, is_shape=True)),
        Port("filter_delta", "weights"),
        (*_OLD_TRANSPOSE, _FILTER_SHAPE), "filter_shape, which you must pass as an operand or attribute", _ALPHA,
    ),
    Operator(
        "BiasAdd-1", ("G0", "G1"), "bias_add", False,
        (Port("input", "src"), Port("bias", "bias")), Port("output", "dst"),
        (DATA_FORMAT,), "the shape of input", _ALPHA,
    ),
    Operator(
        "BiasAddBackprop-1", ("G0", "G1"), "bias", False,
        (Port("output_delta", "dst"),), Port("bias_delta", "bias"),
        (DATA_FORMAT,), "(C,), where C is the number of channels", _ALPHA,
    ),
)  # fmt: skip


# Names of other libraries without their number of axes, underlines and capitals.
_OF_OTHERS = {
    **dict.fromkeys(("conv", "convolution", "convgeneraldilated", "depthwiseconv", "correlate"), "Convolution"),
    **dict.fromkeys(("convtranspose", "convtransposed", "transposedconv", "deconv", "deconvolution"), "ConvTranspose"),
    **dict.fromkeys(("convinput", "convbackpropinput", "convdgrad", "dgrad"), "ConvolutionBackwardData"),
    **dict.fromkeys(
        ("convweight", "convweights", "convbackpropfilter", "convwgrad", "wgrad"), "ConvolutionBackwardWeights"
    ),
    "convtransposeinput": "ConvTransposeBackwardData",
    "convtransposeweight": "ConvTransposeBackwardWeights",
    "biasaddgrad": "BiasAddBackward",
}  # fmt: skip


def of_others(name: str) -> str:
    """Return the operator that another library calls by this name; "" for an unknown name.

    >>> of_others("conv2d"), of_others("torch.nn.ConvTranspose3d"), of_others("conv1d_weight"), of_others("matmul")
    ('Convolution', 'ConvTranspose', 'ConvolutionBackwardWeights', '')
    """
    last = re.split(r"[.:/]", name.lower())[-1]
    return _OF_OTHERS.get(re.sub(r"[1-9]d|_", "", last), "")


def rows(name: str) -> list[Operator]:
    """Return the rows of an operator: one, or two if generations share a name but not the order of operands.

    The suffix "-1" may be added to or omitted from ``name``, unless another row has the resulting name.

    >>> [row.name for name in ("ConvolutionBackpropWeights", "Convolution", "Convolution-1") for row in rows(name)]
    ['ConvolutionBackpropWeights-1', 'Convolution', 'Convolution-1']
    """
    candidates: list[Operator] = []
    if isinstance(name, str):
        plain = name.removesuffix(VERSION)
        spellings = (name, plain, f"{plain}{VERSION}")
        rows_of_names = ([row for row in OPERATORS if row.name == spelling] for spelling in spellings)
        candidates = next(filter(None, rows_of_names), candidates)
    if not candidates:  # O1
        # A value that is not a string is named by its type, because its own text may be long.
        asked = name if isinstance(name, str) else str(getattr(name, "__name__", type(name).__name__))
        names = {row.name.lower(): row.name for row in OPERATORS}
        asked = asked[:200]
        close = difflib.get_close_matches(asked.lower(), names, n=3, cutoff=0.5)
        near = [other] if (other := of_others(asked)) else [names[match] for match in close]
        hint = f"Did you mean {', '.join(near)}?" if near else f"It has {', '.join(names.values())}"
        refuse("O1", asked, f"the operator must be a name in the operator table. {hint}")
    return candidates


def find(name: str, *, shape_second: bool = False) -> Operator:
    """Return the row of an operator. ``shape_second`` means that the call's second operand is a 1-D integer array.

    This flag distinguishes the two rows named ConvolutionBackpropFilters-1, which have different orders of operands.

    >>> find("ConvolutionBackpropFilters-1").operands[1].name
    'output_delta'
    >>> find("ConvolutionBackpropFilters-1", shape_second=True).operands[1].name
    'filters_shape'
    """
    return _row(name, shape_second) if isinstance(name, str) else rows(name)[0]  # which raises


def solving_for(tensor: SolvesFor, transposed: bool) -> Operator:
    """Return the row of the current generation's operator that solves for a tensor.

    >>> solving_for("src", False).name
    'ConvolutionBackwardData'
    """
    return next(row for row in OPERATORS if (row.solves_for, row.transposed) == (tensor, transposed))


@cache
def _row(name: str, shape_second: bool) -> Operator:
    candidates = rows(name)
    fitting = [row for row in candidates if row.operands[1:2] and row.operands[1].is_shape]
    return fitting[0] if shape_second and fitting else candidates[0]

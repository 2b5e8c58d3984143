"""The notation that describes a problem in one line, for tests, benchmarks and the command line.

A line is ``[deconv] DIRECTION TYPE DATA_FORMAT[:WEIGHTS_FORMAT] descriptor``, for example
``BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1``. The default weights format of NXC is XIO, or XOI for
deconv. The default weights format of NCX is OIX, or IOX for
deconv.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convgrad import formats
from convgrad.descriptor import AxisSize, Descriptor, read_descriptor, write_descriptor
from convgrad.errors import NotationError
from convgrad.formats import Format
from convgrad.spec.check import check_attributes
from convgrad.spec.geometry import effective_kernel, transposed_extent
from convgrad.spec.layouts import DATA, from_canonical, in_our_letters
from convgrad.spec.operators import CONV_WEIGHTS, TRANSPOSE_WEIGHTS, find
from convgrad.spec.problem import Problem, problem_of
from convgrad.words import meant

DIRECTIONS: Mapping[str, tuple[str, ...]] = {
    "FWD_B": ("Convolution",),
    "FWD_D": ("Convolution",),
    "FWD_I": ("Convolution",),
    "BWD_D": ("ConvolutionBackwardData",),
    "BWD_W": ("ConvolutionBackwardWeights",),
    "BWD_WB": ("ConvolutionBackwardWeights", "BiasAddBackward"),
}
_TRANSPOSED = {
    "Convolution": "ConvTranspose",
    "ConvolutionBackwardData": "ConvTransposeBackwardData",
    "ConvolutionBackwardWeights": "ConvTransposeBackwardWeights",
}


@dataclass(frozen=True)
class Line:
    """The values of a problem line."""

    transposed: bool
    direction: str
    format: Format
    data_format: str
    weights_format: str
    descriptor: Descriptor


@dataclass(frozen=True)
class OperatorCall:
    """A call of an operator: its operands' shapes, its attributes, and the number format."""

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: Mapping[str, object]
    format: Format


def read(line: str, strict: bool = False) -> Line:
    """Read one problem line. ``strict`` is that of ``read_descriptor``.

    >>> read("BWD_W bf16 NXC mb8ic64ih56oc64oh56kh3ph1").weights_format
    'XIO'
    """
    words = line.split(None, 4)
    transposed = bool(words) and words[0] == "deconv"
    words = line.split(None, 3 + transposed)[transposed:]
    if len(words) != 4:
        raise NotationError(
            f"a problem line is [deconv] DIRECTION TYPE DATA_FORMAT[:WEIGHTS_FORMAT] descriptor; got {line!r:.100}"
        )
    direction, type_name, layouts, descriptor = words
    if " -" in descriptor:
        options = descriptor[descriptor.index(" -") + 1 :]
        raise NotationError(
            f"a problem line must end with its descriptor, and options must be outside its quotes; got {options!r:.100}"
        )
    data_format, _, weights_format = layouts.partition(":")
    choices = TRANSPOSE_WEIGHTS if transposed else CONV_WEIGHTS
    weights_format = weights_format or choices[data_format == "NCX"]
    for word, legal in (
        (direction, DIRECTIONS),
        (type_name, formats.FORMATS),
        (data_format, DATA),
        (weights_format, choices),
    ):
        if word not in legal:
            hint = meant_direction(word) if legal is DIRECTIONS else meant(in_our_letters(word), legal)
            raise NotationError(f"expected one of {', '.join(legal)}; got {word!r:.100} in {line!r:.100}{hint}")
    fmt = formats.FORMATS[type_name]
    return Line(
        transposed, direction, fmt, data_format, weights_format, read_descriptor(descriptor, transposed, strict)
    )


def meant_direction(word: str) -> str:
    """Return a hint that suggests a direction instead of an unknown one; "" if no direction is similar.

    >>> meant_direction("FWD"), meant_direction("bwd"), meant_direction("FWD-B")
    ('. Did you mean FWD_D?', '. Did you mean BWD_D, BWD_W or BWD_WB?', '. Did you mean FWD_B?')
    """
    short = {"FWD": ". Did you mean FWD_D?", "BWD": ". Did you mean BWD_D, BWD_W or BWD_WB?"}
    return short.get(word.upper()) or meant(word, DIRECTIONS)


def write(line: Line) -> str:
    """Return a problem line as text. ``read`` of this text returns an equal line.

    >>> write(read("BWD_W f32 NXC mb8_ic64ih56iw56oc64_kh3kw3ph1pw1"))
    'BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1'
    """
    choices = TRANSPOSE_WEIGHTS if line.transposed else CONV_WEIGHTS
    default = choices[line.data_format == "NCX"]
    layouts = line.data_format + ("" if line.weights_format == default else f":{line.weights_format}")
    words = [line.direction, line.format.name, layouts, write_descriptor(line.descriptor, line.transposed)]
    return " ".join(["deconv"] * line.transposed + words)


def calls(line: Line) -> tuple[OperatorCall, ...]:
    """Return the operator calls that a line stands for: two for BWD_WB, else one."""
    return tuple(_call(line, operator) for operator in DIRECTIONS[line.direction])


def problem(text: str) -> Problem:
    """Return the problem of a line that runs one operator.

    >>> problem("BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1").output_shape
    (3, 3, 64, 64)
    """
    first, *others = calls(read(text))
    if others:
        raise NotationError(f"the line must run one operator; got {text!r:.100}, which runs {len(others) + 1}")
    op = find(first.operator)
    attributes = check_attributes(op, first.attributes, len(first.shapes[0]) - 2)
    return problem_of(op, first.shapes, attributes, first.format, first.format)


def _call(line: Line, operator: str) -> OperatorCall:
    d = line.descriptor
    src = from_canonical((d.batch, d.in_channels, *(a.input for a in d.axes)), line.data_format)
    dst = from_canonical((d.batch, d.out_channels, *(a.output for a in d.axes)), line.data_format)
    outer, inner = (d.in_channels, d.out_channels) if line.transposed else (d.out_channels, d.in_channels)
    if inner % d.groups or outer % d.groups:
        raise NotationError(f"g must divide ic and oc; got {write_descriptor(d, line.transposed):.100}")
    weights = from_canonical((outer, inner // d.groups, *(a.kernel for a in d.axes)), line.weights_format)
    if operator == "BiasAddBackward":
        return OperatorCall(operator, (dst,), {"data_format": line.data_format}, line.format)
    forward_shapes = (src, weights, (d.out_channels,)) if line.direction == "FWD_B" else (src, weights)
    shapes = {
        "Convolution": forward_shapes,
        "ConvolutionBackwardData": (dst, weights) if line.transposed else (dst, weights, src),
        "ConvolutionBackwardWeights": (src, dst, weights),
    }[operator]
    attributes: dict[str, object] = {
        "strides": [a.stride for a in d.axes],
        "pads_begin": [a.pad_begin for a in d.axes],
        "pads_end": [a.pad_end for a in d.axes],
        "dilations": [a.dilation for a in d.axes],
        "groups": d.groups,
        "data_format": line.data_format,
        "weights_format": line.weights_format,
    }
    if line.transposed:
        padding = [_output_padding(a) for a in d.axes]
        attributes["output_padding"] = padding if any(padding) else None
    return OperatorCall(_TRANSPOSED[operator] if line.transposed else operator, shapes, attributes, line.format)


def _output_padding(axis: AxisSize) -> int:
    """Return the output padding of a deconvolution: the output extent minus the smallest possible output extent."""
    effective = effective_kernel(axis.kernel, axis.dilation)
    return axis.output - transposed_extent(axis.input, effective, axis.stride, axis.pad_begin + axis.pad_end)

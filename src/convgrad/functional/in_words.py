"""Texts that describe a call: its arrays, the formula of one element of the result, and the amount of work."""

from __future__ import annotations

from typing import get_args

from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.layouts import from_canonical, shape_words
from convgrad.spec.operators import Tensor, find
from convgrad.spec.problem import Problem, canonical_shapes
from convgrad.spec.work import moved_bytes, needed_flops, nominal_flops

AXES = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}

# The formula of one element of each tensor that a call can compute. n is the image, c the channel of src, o the channel
# of dst.
SUMS = {
    "dst": "{dst}[n, p, o] = sum over k and c of {src}[n, i, c] * {weights}[k, c, o]",
    "src": "{src}[n, i, c] = sum over k and o of {dst}[n, p, o] * {weights}[k, c, o]",
    "weights": "{weights}[k, c, o] = sum over n and p of {src}[n, i, c] * {dst}[n, p, o]",
    "bias_add": "{dst}[n, p, c] = {src}[n, p, c] + {bias}[c]",
    "bias": "{bias}[c] = sum over n and p of {dst}[n, p, c]",
}

# The product of norms in the error bound of Winograd, for each tensor that a call can compute.
NORMS = {
    "dst": "||{src}_t|| ||{weights}_o||",
    "src": "||{dst}_t|| ||{weights}_c||",
    "weights": "||{src}_c|| ||{dst}_o||",
}


def in_words(problem: Problem) -> list[tuple[str, str]]:
    """Return the description of a call as pairs of a heading and a text.

    >>> from convgrad import notation
    >>> for heading, text in in_words(notation.problem("BWD_W f32 NXC mb1ic2iw5oc3ow5kw3pw1")):
    ...     print(f"{heading:8}  {text}")
    computes  diff_weights 3x2x3 from src 1x5x2, diff_dst 1x5x3
    formula   diff_weights[k, c, o] = sum over n and p of src[n, i, c] * diff_dst[n, p, o]
    width     i = p + k - 1 with p below 5, k below 3, i from 0 to 4: other i are padding, and add nothing
    numbers   90 multiply-adds, 78 without padding; 172 bytes, each array once
    """
    geometry, shapes = problem.geometry, shapes_by_name(problem)
    *operands, result = (f"{name} {shape_words(shape)}" for name, shape in shapes.items())
    rows = [("computes", f"{result} from {', '.join(operands)}"), ("formula", formula(problem))]
    if problem.activation:
        rows.append(("activation", f"{problem.activation}: values of at most 0 become +0, before the only rounding"))
    if isinstance(geometry, Conv):
        titles = AXES.get(len(geometry.axes)) or tuple(f"axis {n}" for n in range(len(geometry.axes)))
        rows += [(title, _axis(axis)) for title, axis in zip(titles, geometry.axes, strict=True)]
        if geometry.groups > 1:
            channels = f"{geometry.src_channels // geometry.groups} c and {geometry.dst_channels // geometry.groups} o"
            text = f"{geometry.groups}, of {channels} each: each o is paired with the c of its group only"
            rows.append(("groups", text))
        nominal, needed = nominal_flops(geometry) // 2, needed_flops(geometry) // 2
        unpadded = f", {needed:,} without padding" if needed != nominal else ""
        work = f"{nominal:,} multiply-adds{unpadded}"
    else:
        work = f"{nominal_flops(geometry):,} additions"
    return [*rows, ("numbers", f"{work}; {moved_bytes(problem):,} bytes, each array once")]


def shapes_by_name(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the operands and, last, of the result, by name, in the caller's memory formats."""
    shapes = zip(canonical_shapes(problem), problem.layouts, strict=True)
    callers_shapes = [shape if len(shape) == 1 else from_canonical(shape, layout) for shape, layout in shapes]
    return dict(zip(_names(problem).values(), callers_shapes, strict=True))


def formula(problem: Problem) -> str:
    """Return the formula of one element of the result, in which arrays have the operator's names."""
    names = _names(problem)
    text = SUMS[problem.solves_for].format(**{tensor: names.get(tensor, tensor) for tensor in get_args(Tensor)})
    if "bias" in problem.operands and problem.solves_for in ("dst", "src"):
        text += f" + {names['bias']}[{'o' if problem.solves_for == 'dst' else 'c'}]"
    return text


def norms(problem: Problem) -> str:
    """Return the product of norms in Winograd's error bound. The index t stands for an input tile."""
    names = _names(problem)
    return NORMS[problem.solves_for].format(**{tensor: names.get(tensor, tensor) for tensor in get_args(Tensor)})


def _names(problem: Problem) -> dict[Tensor, str]:
    """Return the operator's name for each array of the underlying convolution: the operands and, last, the result."""
    op = find(problem.operator)
    ports = [port for port in op.operands if not port.is_shape][: len(problem.operands)]
    names = {tensor: port.name for tensor, port in zip(problem.operands, ports, strict=True)}
    return names | {problem.output: op.output.name}


def _axis(axis: Axis) -> str:
    pad = f" - {axis.pad_begin}" if axis.pad_begin > 0 else f" + {-axis.pad_begin}" if axis.pad_begin else ""
    where = f"p below {axis.dst}, k below {axis.kernel}, i from 0 to {axis.src - 1}"
    position = f"{_times(axis.stride)}p + {_times(axis.dilation)}k{pad}"
    return f"i = {position} with {where}: other i are padding, and add nothing"


def _times(factor: int) -> str:
    return "" if factor == 1 else f"{factor}*"

"""JAX as a peer: compiled calls of ``conv_general_dilated``, or of its vjp, on channels-last arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import jax
import numpy as np

from convgrad.cli.bench.work import Contender, Work
from convgrad.spec.geometry import Axis
from convgrad.spec.layouts import axis_order, from_canonical
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import canonical_shape

_LAYOUTS: Mapping[Tensor, str] = {"src": "NXC", "dst": "NXC", "weights": "XIO", "bias": "NCX"}


def contenders(work: Work, threads: int) -> list[Contender]:
    """Return JAX's only contender. ``threads`` has no effect: ``peers.load`` sets JAX's threads before its import."""
    arrays = []
    for tensor, operand in zip(work.problem.operands, work.operands, strict=True):
        laid_out = operand.transpose(np.argsort(axis_order(_LAYOUTS[tensor], operand.ndim)))
        with jax.enable_x64(True):  # only here and in each call, so that the caller's setting is unchanged
            arrays.append(jax.numpy.asarray(np.ascontiguousarray(laid_out)))
    function = jax.jit(_function(work))
    order = axis_order(_LAYOUTS[work.problem.output], len(work.problem.output_shape))
    return [Contender("jax nhwc", partial(_run, function, arrays), lambda out: np.asarray(out).transpose(order))]


def _run(function: Callable[..., jax.Array], arrays: list[jax.Array]) -> jax.Array:
    with jax.enable_x64(True):
        return function(*arrays).block_until_ready()


def _function(work: Work) -> Callable[..., jax.Array]:
    """Return the function of a problem's pass: the forward pass, or its transpose with respect to one operand."""
    conv, dtype = work.conv, work.problem.operand_format.dtype

    def forward(src: jax.Array, weights: jax.Array) -> jax.Array:
        letters = "DHW"[-len(conv.axes) :]
        return jax.lax.conv_general_dilated(
            src,
            weights,
            [a.stride for a in conv.axes],
            [_pads(a) for a in conv.axes],
            rhs_dilation=[a.dilation for a in conv.axes],
            dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
            feature_group_count=conv.groups,
        )

    def transposed(name: Tensor, function: Callable[[jax.Array], jax.Array], dst: jax.Array) -> jax.Array:
        zeros = jax.numpy.zeros(from_canonical(canonical_shape(conv, name), _LAYOUTS[name]), dtype)
        return jax.vjp(function, zeros)[1](dst)[0]

    gradients: dict[str, Callable[[dict[str, jax.Array]], jax.Array]] = {
        "dst": lambda t: forward(t["src"], t["weights"]),
        "src": lambda t: transposed("src", lambda src: forward(src, t["weights"]), t["dst"]),
        "weights": lambda t: transposed("weights", lambda weights: forward(t["src"], weights), t["dst"]),
    }

    def function(*arrays: jax.Array) -> jax.Array:
        tensors = dict(zip(work.problem.operands, arrays, strict=True))
        result = gradients[work.problem.solves_for](tensors)
        return result + tensors["bias"] if "bias" in tensors else result

    return function


def _pads(axis: Axis) -> tuple[int, int]:
    """Return the pads (begin, end) with which JAX's dst has the axis's extent. The pad at the end may be negative."""
    needed = axis.span - axis.src
    return axis.pad_begin, needed - axis.pad_begin

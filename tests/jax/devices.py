"""A program for tests: convolutions on four devices of one processor, by every way to cut a batch among them."""

from __future__ import annotations

import os
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import convgrad
import convgrad.jax as cj


def same(got: Any, expected: np.ndarray, what: str) -> None:
    assert np.asarray(got).tobytes() == expected.tobytes(), what


def main() -> None:
    rng = np.random.default_rng(0)
    src, weights, diff_dst = (
        rng.integers(-4, 5, shape).astype(np.float32) for shape in ((8, 6, 6, 4), (3, 3, 4, 4), (8, 4, 4, 4))
    )
    dst = convgrad.convolution(src, weights)
    gradients = (
        convgrad.convolution_backward_data(diff_dst, weights, src.shape),
        convgrad.convolution_backward_weights(src, diff_dst, weights.shape),
    )

    def both(src: Any, weights: Any, diff_dst: Any) -> Any:
        return jax.grad(lambda *given: (cj.convolution(*given) * diff_dst).sum(), argnums=(0, 1))(src, weights)

    def summed(src: Any, weights: Any, diff_dst: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        dst = jax.lax.conv_general_dilated(src, weights, (1, 1), "VALID", dimension_numbers=numbers)
        return jax.lax.psum((dst * diff_dst).sum(), "x")

    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((4,), ("x",), axis_types=(kind,))
        cut, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
        given = [jax.device_put(array, at) for array, at in ((src, cut), (weights, whole), (diff_dst, cut))]
        same(jax.jit(cj.convolution)(*given[:2]), dst, f"jit of {kind}")
        for got, expected in zip(jax.jit(both)(*given), gradients, strict=True):
            same(got, expected, f"gradient in jit of {kind}")
        mapped = jax.shard_map(both, mesh=mesh, in_specs=(P("x"), P(), P("x")), out_specs=(P("x"), P()))
        for got, expected in zip(jax.jit(mapped)(*given), gradients, strict=True):
            same(got, expected, f"gradient in shard_map of {kind}")
        theirs = jax.shard_map(summed, mesh=mesh, in_specs=(P("x"), P(), P("x")), out_specs=P())
        mapped = jax.grad(cj.reproducible(theirs), argnums=(0, 1))
        for got, expected in zip(jax.jit(mapped)(*given), gradients, strict=True):
            same(got, expected, f"gradient of a reproducible shard_map of {kind}")
    got = jax.pmap(cj.convolution, in_axes=(0, None))(src.reshape(4, 2, 6, 6, 4), weights)
    same(got.reshape(dst.shape), dst, "pmap")


if __name__ == "__main__":
    main()

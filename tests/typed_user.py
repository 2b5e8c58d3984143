"""What users write, as type checkers see it: this file is checked, not run.

Each ``type: ignore`` stands at a mistake that must be found: a checker that finds none complains of the comment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, assert_type

import jax
import numpy as np
import torch
from numpy.typing import NDArray

import convgrad
import convgrad.dask
import convgrad.jax
import convgrad.scale
import convgrad.torch
from convgrad import graph, testing, verify

Array = NDArray[np.float32]


def functions(src: Array, weights: Array, bias: Array, diff_dst: Array) -> Array:
    """Give results to whom they are: arrays of the first operand's library, so of Any."""
    dst: Array = convgrad.convolution(src, weights, bias, strides=2, pads_begin=(1, 1), auto_pad="none", threads=1)
    up: Array = convgrad.conv_transpose(dst, weights, strides=[2, 2], output_padding=1)
    data: Array = convgrad.convolution_backward_data(diff_dst, weights, src.shape, data_format="NCX")
    assert_type(convgrad.convolution_backward_weights(src, diff_dst, (3, 3, 8, 8), out=weights, accumulate=True), Any)
    convgrad.convolution_backward_weights(src, diff_dst, np.array([3, 3, 8, 8]), dtype=np.float64)
    convgrad.conv_transpose_backward_data(diff_dst, weights, weights_format="IOX")
    convgrad.conv_transpose_backward_weights(src, diff_dst, weights.shape)
    convgrad.convolution_backprop_data(diff_dst, weights)
    convgrad.convolution_backprop_filters(src, diff_dst, (3, 3, 8, 8))
    convgrad.convolution_backprop_weights(src, diff_dst, (3, 3, 8, 8))
    print(convgrad.bias_add(dst, bias), convgrad.bias_add_backward(diff_dst))
    with convgrad.threads(2):
        print(convgrad.error_bound("Convolution", src, weights))
    same: Array = convgrad.run("Convolution", src, weights, strides=[1, 1], dilations=[1, 1])
    assert_type(convgrad.infer_shapes("Convolution", src.shape, weights.shape), tuple[int, ...])
    return dst + up + data + same


def mistakes(src: Array, weights: Array) -> None:
    """What is no such argument, or no such value, is found before it runs."""
    convgrad.convolution(src)  # type: ignore[call-arg]
    convgrad.convolution(src, weights, stride=2)  # type: ignore[call-arg]
    convgrad.convolution(src, weights, strides="2")  # type: ignore[arg-type]
    convgrad.convolution(src, weights, strides=2.0)  # type: ignore[arg-type]
    convgrad.convolution(src, weights, groups=None)  # type: ignore[arg-type]
    convgrad.convolution(src, weights, data_format=True)  # type: ignore[arg-type]
    convgrad.convolution(src, weights, accumulate="yes")  # type: ignore[arg-type]
    convgrad.convolution_backward_data(src, weights, 28)  # type: ignore[arg-type]
    convgrad.conv_transpose(src, weights, output_padding=0.5)  # type: ignore[arg-type]
    convgrad.convolution_backprop_data(src, weights, weights_format="OIX")  # type: ignore[call-arg]
    convgrad.convolution_backward(src, src, weights, needs=1)  # type: ignore[arg-type]
    convgrad.weighted_weights_sum(src, src, weights.shape)  # type: ignore[call-arg]
    convgrad.jax.convolution(src, weights, groups="2")  # type: ignore[arg-type]
    convgrad.run(convgrad.convolution, src, weights)  # type: ignore[arg-type]
    convgrad.threads("four")  # type: ignore[arg-type]
    verify.check("Convolution", src, src, weights).right  # type: ignore[attr-defined] # noqa: B018
    graph.LogicalTensor("src")  # type: ignore[arg-type]
    graph.Graph().run([src])  # type: ignore[arg-type]


def gradients(src: Array, weights: Array, diff_dst: Array) -> Array:
    """A layer's gradients, of a batch in pieces and of single samples too."""
    all_three = convgrad.convolution_backward(src, diff_dst, weights, needs=("weights", "bias"))
    assert_type(all_three, convgrad.Gradients)
    dst, pullback = convgrad.vjp("Convolution", src, weights)
    assert_type(pullback, convgrad.Pullback)
    diff_src, diff_weights = pullback(dst)
    parts = [convgrad.partials("ConvolutionBackwardWeights", src, diff_dst, weights.shape, first=0)]
    assert_type(parts, list[convgrad.Partials])
    norm2 = convgrad.per_sample_weights_norm2(src, diff_dst, weights.shape)
    scales = convgrad.clip_scales(norm2, 1.0)
    convgrad.weighted_weights_sum(src, diff_dst, weights.shape, scale=scales)
    convgrad.clipped_weights_sum(src, diff_dst, weights.shape, max_norm=1.0)
    joined: Array = convgrad.join(parts)
    compiled = convgrad.compile("Convolution", src, weights)
    assert_type(compiled, convgrad.Compiled)
    print(convgrad.explain("Convolution", src.shape, weights.shape), diff_src, diff_weights, compiled(src, weights))
    return joined


def verdicts(src: Array, diff_dst: Array, theirs: Callable[..., Array]) -> bool:
    """A verdict on an array, or on the function that computes it."""
    verdict = verify.check("ConvolutionBackwardWeights", theirs, src, diff_dst, weights_shape=[3, 3, 8, 8])
    assert_type(verdict, verify.Verdict)
    assert_type(verdict.outcome, Literal["ok", "degraded", "wrong", "undecided", "not served", "not repeatable"])
    assert_type(verdict.defects, tuple[str, ...])
    golden: Array = verify.exact("ConvolutionBackwardWeights", src, diff_dst, weights_shape=[3, 3, 8, 8])
    return verdict.ok and bool(golden.any())


def assertions(src: Array, weights: Array, diff_dst: Array, image: torch.Tensor) -> None:
    """Assertions of tests."""
    for layer in testing.layers(3, types=["bf16"], axes=[2]):
        assert_type(layer, testing.Layer)
        verdict = testing.assert_weight_gradient(weights, layer.src, layer.diff_dst, weights.shape, **layer.attributes)
        assert_type(verdict, verify.Verdict)
    testing.assert_convolution(image.numpy(), src, weights, strides=2, pads_begin=(1, 1), accumulation="bf16")
    testing.assert_convolution(src, src, weights, stride=2)  # type: ignore[call-arg]
    testing.assert_data_gradient(src, diff_dst, weights, src.shape, transposed=True)
    testing.assert_bias_gradient(src, diff_dst, data_format="NCX")
    testing.assert_matrix_product(src, src, weights, old=src, height=32)
    testing.assert_matrix_product(src, src, weights, accumulation=16)  # type: ignore[arg-type]
    testing.assert_linear(src, src, weights)
    testing.assert_linear_weight_gradient(weights, src, diff_dst)
    testing.assert_linear_data_gradient(src, diff_dst, weights, algorithm="sum")
    assert_type(testing.gradcheck(np.sin, [src], scaled_cosine, seed=1), tuple[float, ...])


def scaled_cosine(diff: Array, x: Array) -> list[Array]:
    """Return the gradient of a sine."""
    return [diff * np.cos(x)]


def graphs(path: Path, arrays: dict[str, Array]) -> Any:
    """A graph read or built, run, and in partitions."""
    read = graph.read(path, limits=graph.Limits(file_bytes=1 << 20))
    assert_type(read, graph.Graph)
    dst = graph.LogicalTensor(2, name="dst")
    built = graph.Graph()
    built.add_op(graph.Op(0, "BiasAdd", (graph.LogicalTensor(0, "f32", (1, 8)),), (dst,), {"data_format": "NXC"}))
    built.finalize()
    for partition in built.partitions():
        assert_type(partition, graph.Partition)
        assert_type(partition.compile()(arrays), dict[int, Any])
    assert_type(graph.to_json(graph.from_json("{}")), str)
    return read.run(arrays).results[2]


def frameworks(layer: torch.nn.Conv2d, image: torch.Tensor, ones: jax.Array) -> torch.Tensor:
    """Tensors of PyTorch and JAX."""
    ours = convgrad.torch.reproducible(layer)
    assert_type(ours, torch.nn.Conv2d)
    assert_type(convgrad.torch.fingerprint(ours), str)
    assert_type(convgrad.torch.report(ours, step=ours.train), convgrad.torch.Report)
    with convgrad.torch.same_bits(strict=False):
        assert_type(convgrad.torch.audit(ours.train).varying["aten::silu"]["train.py:1"], int)
    first, second = convgrad.torch.record(ours.train), convgrad.torch.record(ours.eval)
    assert_type(convgrad.torch.first_difference(first, second), convgrad.torch.Difference | None)
    theirs: jax.Array = convgrad.jax.convolution(ones, ones)
    print(theirs)
    assert_type(convgrad.jax.reproducible(unpadded)(ones, "VALID"), str)
    assert_type(convgrad.torch.conv2d(image, layer.weight, padding="same", stride=(1, 1)), torch.Tensor)
    convgrad.torch.conv2d(image, layer.weight, strides=1)  # type: ignore[call-arg]
    convgrad.torch.conv_transpose2d(image, layer.weight, output_padding="1")  # type: ignore[arg-type]
    convgrad.torch.grad.conv2d_weight(image, 3, image)  # type: ignore[arg-type]
    return convgrad.torch.grad.conv2d_input(image.shape, layer.weight, grad_output=image)


def unpadded(images: jax.Array, padding: str) -> str:
    """Return what is none of JAX's."""
    return f"{padding} {images.ndim}"


def larger(src: np.memmap[Any, Any], weights: Array) -> Any:
    """Arrays larger than memory, or of Dask."""
    print(convgrad.scale.plan("Convolution", src, weights, memory="1GB", strides=[1, 1]))
    lazy: Any = convgrad.dask.convolution(src, weights)
    return convgrad.scale.run("Convolution", src, weights, memory=1 << 30, checkpoint="layer.checkpoint"), lazy

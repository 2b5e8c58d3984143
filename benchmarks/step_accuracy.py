"""Measure errors of the operators of a training step: convgrad's inside ``same_bits()``, and PyTorch's, against f64.

PYTHONPATH=src python benchmarks/step_accuracy.py -o benchmarks/results/step_accuracy.csv

An error is the largest difference from PyTorch's result in f64, relative to the largest element of this result. Data
are normal numbers plus ``--offset``, in f32.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from rows import asked, write_rows
from torch.nn import functional as F
from torch_steps import FORMATS

import convgrad.torch
from convgrad.host import cpu_model

IMAGES = (32, 64, 112, 112)
aten = torch.ops.aten
Call = Callable[..., Any]
LABELS = torch.arange(32 * 28 * 28).reshape(32, 28, 28) % 64


def batch_norm(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Return the normalised images, and the gradients of input and weight."""
    y, mean, inverse = aten.native_batch_norm(x, w, w, None, None, True, 0.1, 1e-5)
    g = x.roll(1, 0)
    return y, *aten.native_batch_norm_backward(g, x, w, None, None, mean, inverse, True, 1e-5, [True] * 3)


SMALL, MATRIX = (32, 64, 28, 28), (512, 512)
OPERATORS: dict[str, tuple[tuple[tuple[int, ...], ...], Call, tuple[str, ...]]] = {
    "batch norm": ((IMAGES, (64,)), batch_norm, ("y", "dx", "dweight", "dbias")),
    "layer norm": ((SMALL,), lambda x: F.layer_norm(x, x.shape[1:]), ("y",)),
    "group norm": ((SMALL,), lambda x: F.group_norm(x, 8), ("y",)),
    "silu": ((SMALL,), F.silu, ("y",)),
    "gelu": ((SMALL,), F.gelu, ("y",)),
    "softplus": ((SMALL,), F.softplus, ("y",)),
    "convolution": ((SMALL, (64, 64, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1), ("y",)),
    "mm": ((MATRIX, MATRIX), torch.mm, ("y",)),
    "bmm": (((8, 128, 256), (8, 256, 128)), torch.bmm, ("y",)),
    "sum": ((IMAGES,), lambda x: x.sum((0, 2, 3)), ("y",)),
    "mean": ((IMAGES,), lambda x: x.mean((2, 3)), ("y",)),
    "var": ((IMAGES,), lambda x: x.var((0, 2, 3)), ("y",)),
    "linalg_vector_norm": ((IMAGES,), torch.linalg.vector_norm, ("y",)),
    "_log_softmax": ((SMALL,), lambda x: F.log_softmax(x, 1), ("y",)),
    "_softmax": ((SMALL,), lambda x: F.softmax(x, 1), ("y",)),
    "cross entropy": ((SMALL,), lambda x: F.cross_entropy(x, LABELS), ("y",)),
    "mse_loss": ((IMAGES, IMAGES), F.mse_loss, ("y",)),
    "smooth_l1_loss": ((IMAGES, IMAGES), F.smooth_l1_loss, ("y",)),
    "binary cross entropy of logits": (
        (SMALL, SMALL),
        lambda x, t: F.binary_cross_entropy_with_logits(x, (t > 0).to(x.dtype)),
        ("y",),
    ),
    "_adaptive_avg_pool2d": ((IMAGES,), lambda x: F.adaptive_avg_pool2d(x, 1), ("y",)),
    "upsample_bilinear2d": ((SMALL,), lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), ("y",)),
    "exp": ((SMALL,), torch.exp, ("y",)),
    "log": ((SMALL,), lambda x: x.abs().log(), ("y",)),
    "tanh": ((SMALL,), torch.tanh, ("y",)),
    "sigmoid": ((SMALL,), torch.sigmoid, ("y",)),
    "sqrt": ((SMALL,), lambda x: x.abs().sqrt(), ("y",)),
    "rsqrt": ((SMALL,), lambda x: (x.abs() + 1).rsqrt(), ("y",)),
    "add with alpha": ((SMALL, SMALL), lambda x, y: x.add(y, alpha=0.3), ("y",)),
    "lerp": ((SMALL, SMALL), lambda x, y: x.lerp(y, 0.1), ("y",)),
    "addcmul": ((SMALL, SMALL, SMALL), lambda x, y, z: x.addcmul(y, z, value=0.3), ("y",)),
    "addcdiv": ((SMALL, SMALL, SMALL), lambda x, y, z: x.addcdiv(y, z.abs() + 1, value=0.3), ("y",)),
    "embedding backward": (
        ((20000, 64),),
        lambda g: aten.embedding_dense_backward(g, torch.arange(20000) % 50, 50, -1, False),
        ("y",),
    ),
}


def drawn(shapes: tuple[tuple[int, ...], ...], memory: torch.memory_format, offset: float) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    for shape in shapes:
        tensor = torch.randn(shape, generator=generator) + offset
        yield tensor.contiguous(memory_format=memory) if len(shape) == 4 else tensor


def several(results: Any) -> tuple[torch.Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def errors(found: Any, exact: Any) -> list[float]:
    """Return the error of each result, relative to the largest element of the exact result."""
    pairs = zip(several(found), several(exact), strict=True)
    return [((a.double() - b).abs().max() / b.abs().max()).item() for a, b in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--offset", type=float, default=0.0)
    options = asked(parser)
    torch.set_num_threads(options.threads)
    rows = []
    for (name, (shapes, call, results)), form in product(OPERATORS.items(), FORMATS):
        if form == "channels_last" and len(shapes[0]) != 4:
            continue
        operands = list(drawn(shapes, FORMATS[form], options.offset))
        exact = call(*[tensor.double() for tensor in operands])
        plain = errors(call(*operands), exact)
        with convgrad.torch.same_bits():
            ours = errors(call(*operands), exact)
        for result, a, b in zip(results, ours, plain, strict=True):
            row = {"operator": name, "result": result, "format": form, "convgrad": f"{a:.1e}", "pytorch": f"{b:.1e}"}
            rows.append(row | {"offset": options.offset, "threads": options.threads, "torch": torch.__version__})
            rows[-1]["processor"] = cpu_model()
            print(rows[-1], flush=True)
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()

"""Measure errors of weight gradients by tiles beside the direct sum's and PyTorch's, layer by layer.

python benchmarks/tiles_errors.py -o tiles_errors.csv --plot docs/tiles_errors.png

Each layer of the suite ``tiles`` is computed of normal numbers: direct, by tiles of 2x2 and 4x4 (``max_error`` 8 and
64, where that admits and chooses them), and by PyTorch in both of its layouts. Errors are against sums in f64, the
largest and the root of the mean square, in units of 2^-24 ||src_c|| ||diff_dst_o||; bounds are in the same units.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rows import asked, write_rows

import convgrad
from convgrad.bench.suites import suite
from convgrad.host import cpu_model
from convgrad.notation import problem as problem_of
from convgrad.spec.chosen import in_variant, kappa
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of

Array = NDArray[Any]
UNIT = 2.0**-24
WAYS = ("direct", "2x2", "4x4", "torch nhwc", "torch nchw")


def torch_s(src: Array, dst: Array, last: bool) -> Array:
    """Return PyTorch's gradient as XIO, of operands in one of its layouts."""
    lies = torch.channels_last if last else torch.contiguous_format
    x, y = (torch.from_numpy(each).permute(0, 3, 1, 2).contiguous(memory_format=lies) for each in (src, dst))
    shape = (dst.shape[-1], src.shape[-1], 3, 3)
    made: Array = torch.nn.grad.conv2d_weight(x, shape, y, padding=1).permute(2, 3, 1, 0).numpy()
    return made


def errors(line: str) -> list[dict[str, Any]]:
    """Return a row a way for a layer."""
    one = problem_of(line.split("n" + "tiles:", maxsplit=1)[0])
    conv = one.geometry
    assert isinstance(conv, Conv)
    rng = np.random.default_rng(20)
    src, dst = (
        np.ascontiguousarray(np.moveaxis(rng.standard_normal(shape, np.float32), 1, -1))
        for shape in (conv.src_shape, conv.dst_shape)
    )
    shape = (3, 3, conv.src_channels, conv.dst_channels)
    exact = convgrad.convolution_backward_weights(
        src.astype(np.float64), dst.astype(np.float64), shape, auto_pad="same_upper"
    )
    norms = [np.sqrt((each.astype(np.float64) ** 2).sum((0, 1, 2))) for each in (src, dst)]
    size = UNIT * norms[0][:, None] * norms[1]
    rows = []
    for way in WAYS:
        most = {"direct": 1, "2x2": 8, "4x4": 64}.get(way, 1)
        chosen = in_variant(one, most)
        if (chosen.variant or "direct") != way and not way.startswith("torch"):
            continue
        if way.startswith("torch"):
            got = torch_s(src, dst, way.endswith("nhwc"))
        else:
            got = convgrad.convolution_backward_weights(src, dst, shape, auto_pad="same_upper", max_error=most)
        share = np.abs(got - exact) / size
        bound = "" if way.startswith("torch") else f"{kappa(chosen) * height_of(chosen):.0f}"
        rows.append({
            "layer": line.split("tiles:")[1], "way": way, "largest": f"{share.max():.3f}",
            "rms": f"{np.sqrt((share**2).mean()):.4f}", "bound": bound, "processor": cpu_model(),
        })  # fmt: skip
        print(f"{rows[-1]['largest']:>8} {rows[-1]['rms']:>8} {bound:>7}  {way:10}  {rows[-1]['layer']}", flush=True)
    return rows


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Draw the largest errors, layer by layer."""
    from matplotlib import pyplot  # noqa: PLC0415 - for who asks for a picture

    layers = list(dict.fromkeys(row["layer"] for row in rows))
    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    for way, mark in zip(WAYS, "osD^v", strict=True):
        found = {row["layer"]: float(row["largest"]) for row in rows if row["way"] == way}
        axes.plot([layers.index(name) for name in found], list(found.values()), mark, label=way)
    axes.set_yscale("log")
    axes.set_xticks(range(len(layers)), layers, rotation=60, ha="right", fontsize=8)
    axes.set_ylabel("largest error / (2$^{-24}$ ||src$_c$|| ||diff_dst$_o$||)")
    axes.legend(fontsize=8, ncols=5)
    figure.savefig(path, dpi=120)


def main() -> int:
    """Print a row a layer and way."""
    parser = argparse.ArgumentParser(prog="tiles_errors.py", description="Measure errors of weight gradients by tiles.")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the largest errors")
    options = asked(parser)
    rows = [row for line in suite("tiles") for row in errors(line)]
    if options.output:
        write_rows(options.output, rows)
    if options.plot:
        draw(rows, options.plot)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

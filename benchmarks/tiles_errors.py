"""Measure errors of results by tiles beside the direct sum's and PyTorch's, layer by layer.

python benchmarks/tiles_errors.py -o tiles_errors.csv --plot docs/tiles_errors.png

Each layer of the suite ``tiles`` is computed of normal numbers, its weight gradient, forward and data gradient: direct,
by tiles of 2x2 and 4x4 (``max_error`` 8 and 64, where that admits and chooses them), and by PyTorch in both of its
layouts. Errors are against sums in f64, the largest and the root of the mean square, in units of 2^-24 times two norms:
of the channels of a weight; of what a position's taps meet, and of the weights of its channel.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rows import asked, write_rows

import convgrad
from convgrad.cli.bench.suites import suite
from convgrad.host import cpu_model
from convgrad.notation import problem as problem_of
from convgrad.spec.geometry import Conv
from convgrad.spec.winograd.choice import with_algorithm

Array = NDArray[Any]
UNIT = 2.0**-24
ACCURACIES = {"direct": 1, "2x2": 8, "4x4": 64}
TORCH = {"torch nhwc": torch.channels_last, "torch nchw": torch.contiguous_format}
WAYS = (*ACCURACIES, *TORCH)
SAME = {"auto_pad": "same_upper"}


@dataclass(frozen=True)
class Role:
    """A direction: what it is called, ours, PyTorch's on its own tensors, and the norms of each element."""

    direction: str
    ours: Callable[..., Array]
    theirs: Callable[..., Any]
    size: Callable[[Array, Array, Array], Array]


def _met(data: Array) -> Array:
    """Return the norms of what the taps of each position meet."""
    squares = np.pad((data.astype(np.float64) ** 2).sum(-1), ((0, 0), (1, 1), (1, 1)))
    height, width = data.shape[1:3]
    sums = sum(squares[:, i : i + height, j : j + width] for i in range(3) for j in range(3))
    return np.sqrt(sums)[..., None]


def _norm(array: Array, axes: tuple[int, ...]) -> Array:
    return np.sqrt((array.astype(np.float64) ** 2).sum(axes))


ROLES = {
    "weight gradient": Role(
        "BWD_W", lambda x, y, w, **how: convgrad.convolution_backward_weights(x, y, w.shape, **SAME, **how),
        lambda x, y, w: torch.nn.grad.conv2d_weight(x, w.shape, y, padding=1),
        lambda x, y, w: _norm(x, (0, 1, 2))[:, None] * _norm(y, (0, 1, 2)),
    ),
    "forward": Role(
        "FWD_D", lambda x, y, w, **how: convgrad.convolution(x, w, **SAME, **how),
        lambda x, y, w: torch.nn.functional.conv2d(x, w, padding=1),
        lambda x, y, w: _met(x) * _norm(w, (0, 1, 2)),
    ),
    "data gradient": Role(
        "BWD_D", lambda x, y, w, **how: convgrad.convolution_backward_data(y, w, **SAME, **how),
        lambda x, y, w: torch.nn.grad.conv2d_input(x.shape, w, y, padding=1),
        lambda x, y, w: _met(y) * _norm(w, (0, 1, 3)),
    ),
}  # fmt: skip


def theirs(role: Role, arrays: Sequence[Array], layout: Any) -> Array:
    """Return PyTorch's result as NXC or XIO, of operands in one of its layouts."""
    x, y = (torch.from_numpy(each).permute(0, 3, 1, 2).contiguous(memory_format=layout) for each in arrays[:2])
    w = torch.from_numpy(arrays[2]).permute(3, 2, 0, 1).contiguous(memory_format=layout)
    made: Array = role.theirs(x, y, w).permute((2, 3, 1, 0) if role.direction == "BWD_W" else (0, 2, 3, 1)).numpy()
    return made


def errors(line: str, name: str) -> list[dict[str, Any]]:
    """Return a row a way for a role of a layer."""
    role, (text, layer) = ROLES[name], line.split("ntiles:")
    one = problem_of(text.replace("BWD_W", role.direction))
    conv = one.geometry
    assert isinstance(conv, Conv)
    rng = np.random.default_rng(20)
    nxc = ((shape[0], *shape[2:], shape[1]) for shape in (conv.src_shape, conv.dst_shape))
    arrays = [rng.standard_normal(shape, np.float32) for shape in (*nxc, (3, 3, conv.src_channels, conv.dst_channels))]
    exact, size = role.ours(*(each.astype(np.float64) for each in arrays)), UNIT * role.size(*arrays)
    rows = []
    for way in WAYS:
        most = ACCURACIES.get(way, 1)
        if way in ACCURACIES and (with_algorithm(one, most).algorithm or "direct") != way:
            continue
        got = theirs(role, arrays, TORCH[way]) if way in TORCH else role.ours(*arrays, max_error=most)
        share = np.abs(got - exact) / size
        rows.append({
            "role": name, "layer": layer, "way": way, "largest": f"{share.max():.3f}",
            "rms": f"{np.sqrt((share**2).mean()):.4f}", "processor": cpu_model(),
        })  # fmt: skip
        print(f"{rows[-1]['largest']:>8} {rows[-1]['rms']:>8}  {way:10}  {name}, {layer}", flush=True)
    return rows


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Draw the largest errors, layer by layer."""
    from matplotlib import pyplot  # noqa: PLC0415 - for who asks for a picture

    layers = list(dict.fromkeys(row["layer"] for row in rows))
    figure, all_axes = pyplot.subplots(1, len(ROLES), figsize=(11, 4.5), layout="constrained", sharey=True)
    for name, axes in zip(ROLES, all_axes, strict=True):
        for way, mark in zip(WAYS, "osD^v", strict=True):
            found = {r["layer"]: float(r["largest"]) for r in rows if (r["role"], r["way"]) == (name, way)}
            axes.plot([layers.index(layer) for layer in found], list(found.values()), mark, ms=5, label=way)
        axes.set_yscale("log")
        axes.set_xticks(range(len(layers)), layers, rotation=70, ha="right", fontsize=8)
        axes.set_title(name)
    all_axes[0].set_ylabel("largest error / (2$^{-24}$ times two norms)")
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(WAYS), fontsize=9)
    figure.savefig(path, dpi=120)


def main() -> int:
    """Print a row a layer, role and way."""
    parser = argparse.ArgumentParser(prog="tiles_errors.py", description="Measure errors of results by tiles.")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the largest errors")
    options = asked(parser)
    rows = [row for name in ROLES for line in suite("tiles") for row in errors(line, name)]
    if options.output:
        write_rows(options.output, rows)
    if options.plot:
        draw(rows, options.plot)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

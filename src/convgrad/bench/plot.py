"""The roofline picture: speed over intensity, with the roofs measured in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from convgrad import pictures
from convgrad.bench.peers import Peer
from convgrad.bench.report import Row
from convgrad.bench.roofs import Roofs

_MARKERS = "^vsD"


def draw(path: str | Path, rows: Sequence[Row], roofs: Roofs, peers: Sequence[Peer], force: bool = True) -> None:
    """Write the picture: a filled marker a case, coloured by suite, and a hollow one for each peer's better layout."""
    figure = pictures.figure(figsize=(10, 6))
    axes = figure.subplots()
    intensities = [r["flops_per_byte"] for r in rows]
    ridges = [roofs.fma_gflops / level.gbs for level in roofs.levels]
    left, right = min(*intensities, *ridges) / 2, max(*intensities, *ridges) * 2
    for level, ridge in zip(roofs.levels, ridges, strict=True):
        axes.plot([left, ridge], [left * level.gbs, roofs.fma_gflops], color="0.6")
        axes.annotate(f" {level.name} {level.gbs:.0f} GB/s", (left, left * level.gbs), fontsize=8, color="0.3")
    axes.plot([ridges[0], right], [roofs.fma_gflops] * 2, color="0.3")
    peak = f"f32 multiply-add peak {roofs.fma_gflops:.0f} GFLOP/s"
    axes.annotate(peak, (right, roofs.fma_gflops), ha="right", va="bottom", fontsize=8, color="0.3")
    for number, suite in enumerate(dict.fromkeys(r["suite"] for r in rows)):
        members = [r for r in rows if r["suite"] == suite]
        x, colour = [r["flops_per_byte"] for r in members], f"C{number % 10}"
        axes.plot(
            x,
            [r["gflops"] for r in members],
            "o",
            color=colour,
            markersize=5,
            label=f"convgrad, {suite or 'command line'}",
        )
        for peer, marker in zip(peers, _MARKERS, strict=False):
            timed = [r for r in members if f"{peer.name}_ms" in r]
            speeds = [1e3 * r["gflop"] / r[f"{peer.name}_ms"] for r in timed]
            axes.plot(
                [r["flops_per_byte"] for r in timed], speeds, marker, color=colour, fillstyle="none", markersize=5
            )
    for peer, marker in zip(peers, _MARKERS, strict=False):
        axes.plot([], [], marker, color="0.3", fillstyle="none", label=f"{peer.name}, better layout")
    axes.set(xscale="log", yscale="log", xlim=(left, right), xlabel="operations per byte, each tensor once")
    axes.set(ylabel="GFLOP/s", title=f"convgrad and peers, threads: {roofs.threads}")
    axes.legend(fontsize=8)
    pictures.save(figure, path, 120, force)

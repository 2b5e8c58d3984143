"""The roofline picture: speed over intensity, with the roofs measured in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convgrad import pictures
from convgrad.bench.peers import Peer
from convgrad.bench.report import Row
from convgrad.bench.roofs import Roofs
from convgrad.words import counted

_OURS, _THEIRS = "osDPXph*", "^v<>"  # filled, a kind a suite; hollow, a kind a peer
_MOST_NAMES, _NAME_POINTS = 12, 7
_BESIDE = (  # where the name of a case may stand: how far from its point, in points, and on which side of it
    (5, 0, "left", "center"),
    (-5, 0, "right", "center"),
    (0, 5, "center", "bottom"),
    (0, -5, "center", "top"),
)


def draw(path: str | Path, rows: Sequence[Row], roofs: Roofs, peers: Sequence[Peer], force: bool = True) -> None:
    """Write the picture: a filled marker a case, hollow ones for each peer's better layout, a line between the two.

    The names of the cases furthest below their roofs stand beside them, where there is room.
    """
    figure = pictures.figure(figsize=(10, 6.4))
    axes = figure.subplots()
    intensities = [r["flops_per_byte"] for r in rows]
    ridges = [roofs.fma_gflops / level.gbs for level in roofs.levels]
    left, right = min(*intensities, *ridges) / 2, max(*intensities, *ridges) * 2
    speeds = [r["gflops"] for r in rows] + [s for r in rows for p in peers if (s := _speed(r, p)) is not None]
    low, high = min(*speeds, *(left * level.gbs for level in roofs.levels)) / 1.5, max(*speeds, roofs.fma_gflops) * 1.5
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    for axis, ends in ((axes.xaxis, (left, right)), (axes.yaxis, (low, high))):
        pictures.plain_ticks(axis, *ends)
    axes.set(xlabel="operations a byte: two a multiply-add, each tensor's bytes once", ylabel="GFLOP/s")
    axes.grid(color="0.92", linewidth=0.6)
    _draw_roofs(axes, roofs, left, right)
    _draw_cases(axes, rows, peers)
    threads = counted(roofs.threads, "thread")
    about = (
        "lines: measured in this run, multiply-adds without memory and reading alone; speeds count taps in padding, too"
    )
    axes.set_title(f"Speed and roofs: {rows[0]['machine']}, {threads}", fontsize=11, pad=20)
    axes.text(0.5, 1.012, about, transform=axes.transAxes, ha="center", va="bottom", fontsize=8, color="0.3")
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    _draw_names(figure, axes, rows)
    pictures.save(figure, path, 120, force)


def _speed(row: Row, peer: Peer) -> float | None:
    ms = row.get(f"{peer.name}_ms")
    return None if ms is None else 1e3 * row["gflop"] / ms


def _draw_roofs(axes: Any, roofs: Roofs, left: float, right: float) -> None:
    peak, highest = roofs.fma_gflops, max(level.gbs for level in roofs.levels)
    for level in roofs.levels:
        axes.plot([left, peak / level.gbs], [left * level.gbs, peak], color="0.6", linewidth=1, zorder=1)
    axes.plot([peak / highest, right], [peak] * 2, color="0.3", linewidth=1, zorder=1)
    label = f"f32 multiply-add peak {peak:.0f} GFLOP/s"
    axes.annotate(label, (peak / highest, peak), (0, 3), textcoords="offset points", fontsize=8, color="0.3")
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    below = 1.0
    for level in sorted(roofs.levels, key=lambda level: -level.gbs):  # names of like speeds move apart, downwards
        _, y = axes.transAxes.inverted().transform(axes.transData.transform((left, left * level.gbs)))
        below = min(y - 0.008, below - 0.036)
        words = f"{level.name} {level.gbs:.0f} GB/s"
        look = {"va": "top", "fontsize": 8, "color": "0.3", "bbox": paper, "zorder": 1.5}
        axes.text(0.008, below, words, transform=axes.transAxes, **look)


def _draw_cases(axes: Any, rows: Sequence[Row], peers: Sequence[Peer]) -> None:
    for number, suite in enumerate(dict.fromkeys(r["suite"] for r in rows)):
        members = [r for r in rows if r["suite"] == suite]
        x, colour = [r["flops_per_byte"] for r in members], f"C{number % 10}"
        look = {"color": colour, "linestyle": "none", "zorder": 3}
        ours = {"marker": _OURS[number % len(_OURS)], "markersize": 5, "label": f"convgrad, {suite or 'command line'}"}
        axes.plot(x, [r["gflops"] for r in members], **ours, **look)
        for peer, marker in zip(peers, _THEIRS, strict=False):
            timed = [(r["flops_per_byte"], r["gflops"], s) for r in members if (s := _speed(r, peer)) is not None]
            intensities, mine, speeds = np.reshape(timed, (-1, 3)).T
            axes.vlines(intensities, mine, speeds, color="0.8", linewidth=0.7, zorder=2)
            axes.plot(intensities, speeds, marker, fillstyle="none", markersize=5, **look)
    for peer, marker in zip(peers, _THEIRS, strict=False):
        axes.plot([], [], marker, color="0.3", fillstyle="none", label=f"{peer.name}, its better layout")


def _draw_names(figure: Any, axes: Any, rows: Sequence[Row]) -> None:
    """Name cases, those furthest below their roofs first, each where its name covers no point and no other text."""
    figure.draw_without_rendering()  # which settles where everything lies
    points = [
        axes.transData.transform(xy)
        for line in axes.lines
        if line.get_linestyle() == "None"
        for xy in line.get_xydata()
    ]
    taken = [text.get_window_extent() for text in axes.texts]
    frame = axes.get_window_extent()
    named: set[str] = set()
    for row in sorted(rows, key=lambda row: row["share_of_floor"]):
        if row["name"] in named or len(named) == _MOST_NAMES:
            continue
        name = row["name"] if len(row["name"]) <= 28 else f"{row['name'][:25]}..."
        for x, y, ha, va in _BESIDE:
            at, look = (row["flops_per_byte"], row["gflops"]), {"ha": ha, "va": va, "fontsize": _NAME_POINTS}
            text = axes.annotate(name, at, (x, y), textcoords="offset points", parse_math=False, zorder=4, **look)
            box = text.get_window_extent().padded(1)
            free = not box.count_contains(points) and not box.count_overlaps(taken)
            if free and frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0 and box.y1 < frame.y1:
                taken.append(box)
                named.add(row["name"])
                break
            text.remove()

"""The report of a run: a row of figures per case, as a line of text and in CSV, and geometric means at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from statistics import median
from typing import Any

from convgrad import engines
from convgrad.cli.bench.figures import fastest, geometric_mean, ratio
from convgrad.cli.bench.harness import TimedOutcome
from convgrad.cli.bench.peers import PEERS, Peer
from convgrad.cli.bench.roofs import Roofs
from convgrad.engines.settings import accuracy, tuning
from convgrad.host import cpu_model
from convgrad.spec.problem import Problem
from convgrad.words import counted

Row = Mapping[str, Any]

LEVELS = ("L1", "L2", "L3", "memory")
VERSIONS = ("convgrad", "numpy", "llvmlite", *PEERS)
_PER_CASE = (
    *("suite", "name", "problem", "direction", "type", "layout", "engine", "right"),
    *("gflop", "mbytes", "flops_per_byte", "convgrad_first_ms", "convgrad_ms", "gflops"),
    *("peak_gflops", "share_of_peak", "level", "floor_ms", "share_of_floor", "predicted_ms", "needed_gflop"),
    *("max_error", "variant", "tune"),
)
_PER_RUN = ("threads", "repeat", "fma_gflops", *(f"{level}_gbs" for level in LEVELS), "machine", "date")
COLUMNS = (
    *_PER_CASE,
    *(f"{p.name}_{column}" for p in PEERS.values() for column in ("ms", "layout", "ratio")),
    *(f"{p.name}_{layout}_{column}" for p in PEERS.values() for layout in p.layouts for column in ("ms", "first_ms")),
    "note",
    *_PER_RUN,
    *(f"{name}_version" for name in VERSIONS),
)
_NAME_WIDTH = 28


def conditions(roofs: Roofs, repeat: int, peers: Sequence[Peer]) -> Row:
    """Return the columns that have the same value in all rows of a run, such as the machine and the date."""
    used = {peer.name for peer in peers}
    return {
        "threads": roofs.threads,
        "repeat": repeat,
        "fma_gflops": roofs.fma_gflops,
        **{f"{level.name}_gbs": level.gbs for level in roofs.levels},
        "machine": cpu_model(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **{f"{name}_version": metadata.version(name) for name in VERSIONS if name not in PEERS or name in used},
    }


def row(outcome: TimedOutcome, roofs: Roofs) -> Row:
    """Return the row of a case: its figures by column."""
    case, mine, peak = outcome.case, outcome.ours, median(outcome.peaks)
    problem = engines.within(outcome.problem, None)
    gflop, floor_ms = outcome.nominal_flops / 1e9, roofs.floor_ms(outcome.needed_flops, outcome.bytes, peak)
    shares = [1e3 * gflop / ms / at for ms, at in zip(mine.rounds_ms, outcome.peaks, strict=False)]
    figures: dict[str, object] = {
        "suite": case.suite,
        "name": case.name,
        "problem": case.text,
        "direction": case.line.direction,
        "type": case.line.format.name,
        "layout": case.line.data_format,
        "engine": outcome.engine,
        "right": "yes" if outcome.right else "no",
        "gflop": gflop,
        "mbytes": outcome.bytes / 1e6,
        "flops_per_byte": outcome.nominal_flops / outcome.bytes,
        "convgrad_first_ms": mine.first_ms,
        "convgrad_ms": mine.median_ms,
        "gflops": 1e3 * gflop / mine.median_ms,
        "peak_gflops": peak,
        "share_of_peak": median(shares),
        "level": roofs.level(outcome.bytes).name,
        "floor_ms": floor_ms,
        "share_of_floor": floor_ms / mine.median_ms,
        "predicted_ms": predicted_ms(problem, roofs.threads),
        "max_error": accuracy(None),
        "variant": problem.algorithm or "direct",
        "tune": "yes" if tuning() else "no",
        "needed_gflop": outcome.needed_flops / 1e9,
    }
    notes = list(outcome.notes)
    for name, series in outcome.peers.items():
        for layout, timing in zip(PEERS[name].layouts, series, strict=True):
            notes += timing.notes
            if timing.rounds_ms:
                figures |= {f"{name}_{layout}_ms": timing.median_ms, f"{name}_{layout}_first_ms": timing.first_ms}
        best = fastest(series)
        if best and outcome.right:  # the speed of a wrong result is not compared
            layout = PEERS[name].layouts[series.index(best)]
            figures |= {f"{name}_ms": best.median_ms, f"{name}_layout": layout, f"{name}_ratio": ratio(mine, best)}
    figures["note"] = "; ".join(dict.fromkeys(notes))
    return figures


def predicted_ms(problem: Problem, threads: int) -> float | None:
    """Return the time in ms that the plan predicts; None without a plan."""
    machine = engines.machine_of(problem)
    return None if machine is None else engines.plan_of(problem, machine, threads).time_ms


# -- text ------------------------------------------------------------------------------------------------------------


SHARES = (
    "of peak: share of the multiply-add peak measured with each call; of floor: the least time that it and reading"
    " allow, divided by ours; speedup: the other library's time, in its faster memory format, divided by ours"
)


def heading(roofs: Roofs) -> str:
    """Return the machine's name and measured limits as a line of text."""
    levels = ", ".join(f"{level.name} {level.gbs:.0f}" for level in roofs.levels)
    threads = counted(roofs.threads, "thread")
    peak = f"f32 multiply-add peak {roofs.fma_gflops:.0f} GFLOP/s"
    return f"{cpu_model()}, {threads}: {peak}; reading, GB/s: {levels}"


def head_line(peers: Sequence[Peer]) -> str:
    """Return the line with the headings of the table."""
    ratios = "".join(f"{f'{peer.name} ms':>15} {'speedup':>8}" for peer in peers)
    speed = f"{'GFLOP/s':>8} {'ms':>9}{ratios} {'of peak':>8} {'of floor':>8}"
    return f"{'problem':{_NAME_WIDTH}} {'dir':5} type layout {speed}  engine"


def line(figures: Row, peers: Sequence[Peer]) -> str:
    """Return a row as a line of the table. If the row has a note, the note is a second line."""
    text = f"{_short(figures['name']):{_NAME_WIDTH}} {figures['direction']:5} {figures['type']:4} {figures['layout']:6}"
    text += f" {figures['gflops']:8.4g} {figures['convgrad_ms']:9.4g}"
    for peer in peers:
        text += _peer_words(figures, peer)
    text += f" {figures['share_of_peak']:8.1%} {figures['share_of_floor']:8.1%}  {figures['engine']}"
    return text + (f"\n    {figures['note']}" if figures["note"] else "")


def summary(rows: Sequence[Row], peers: Sequence[Peer]) -> Iterator[str]:
    """Yield lines with geometric means for every combination of suite, direction, type and layout.

    For each peer, another line has the speedup and the slowest problem.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for figures in rows:
        groups.setdefault(tuple(figures[key] for key in ("suite", "direction", "type", "layout")), []).append(figures)
    for key, members in groups.items():
        of_peak, of_floor = (geometric_mean(m[f"share_of_{what}"] for m in members) for what in ("peak", "floor"))
        means = f"geometric means {of_peak:.1%} of peak, {of_floor:.1%} of floor"
        yield f"{' '.join(filter(None, key))}: {len(members)} problem{'s' * (len(members) > 1)}, {means}"
        for peer in peers:
            column = f"{peer.name}_ratio"
            timed = [m for m in members if column in m]
            mean = geometric_mean(m[column] for m in timed)
            if mean is not None:
                worst = min(timed, key=lambda m: m[column])
                counts = counted(len(timed), "problem")
                fast = f"{mean:.2f} times as fast as {peer.name} in the geometric mean of {counts}"
                yield f"    {fast}; slowest {worst[column]:.2f}, {worst['name']}"


def _peer_words(figures: Row, peer: Peer) -> str:
    name = peer.name
    if f"{name}_ratio" not in figures:
        return f"{'-':>15} {'-':>8}"
    return f"{figures[f'{name}_ms']:10.4g} {figures[f'{name}_layout']:4} {figures[f'{name}_ratio']:7.2f}x"


def _short(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 3]}..."

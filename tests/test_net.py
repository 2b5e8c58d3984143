"""The net under a change of the engine: plans, tables and kernels are those that were written down."""

from __future__ import annotations

from net import FILE, lines_of, problems_of, written


def test_plans_tables_and_kernels_are_those_of_the_golden_file() -> None:
    text = FILE.read_text()
    made = written(lines_of(text)).splitlines()
    there = [line for line in text.splitlines() if not line.startswith("#")]
    changed = [f"{was}\n{now}" for was, now in zip(there, made, strict=True) if was != now]
    assert not changed, f"{len(changed)} of {len(there)} lines changed:\n" + "\n".join(changed[:3])


def test_the_net_is_wide() -> None:
    text = FILE.read_text()
    made = [one.solves_for for line in lines_of(text) for one in problems_of(line)]
    assert len(made) >= 240
    assert min(made.count(role) for role in ("weights", "dst", "src")) >= 18
    for word in ("by=positions", "rows=dst:place", "lanes=weights:terms", "out=terms"):
        assert text.count(word) >= 10, word
    for word in ("by=dense", "by=taps_in_the_tile", "by=groups_in_the_lanes", "by=strips", "rows=src:place"):
        assert text.count(word) >= 10, word

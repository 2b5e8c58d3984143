"""The page of settings: what tuning gains in the committed runs."""

from __future__ import annotations

import itertools
from statistics import geometric_mean

from tests.docs.figures import Row, rows_of
from tests.support.places import DOCS


def _classes(rows: list[Row]) -> dict[tuple[str, str, str], list[float]]:
    """Return the gains of each suite, direction and layout."""
    classes = dict[tuple[str, str, str], list[float]]()
    for row in rows:
        direction, _, layout = row["problem"].removeprefix("deconv ").split()[:3]
        classes.setdefault((row["suite"], direction, layout), []).append(float(row["gain"]))
    return classes


def test_gains_of_measured_plans_are_those_of_the_committed_run() -> None:
    text, rows = (DOCS / "settings.md").read_text(encoding="utf-8"), rows_of("tuned.csv")
    gains = [float(row["gain"]) for row in rows]
    means = {name: geometric_mean(of_class) for name, of_class in _classes(rows).items()}
    best = max(means, key=lambda name: means[name])
    assert best == ("depthwise", "FWD_D", "NXC")
    slower, faster = (round(100 * abs(gain - 1)) for gain in (min(means.values()), means[best]))
    words = f"Averaged over a suite of layers, tuning makes them {slower} % slower to {faster} % faster."
    assert words in " ".join(text.split())
    words = f"Single f32 layers became {min(gains):.2f} to {max(gains):.2f} times as fast on"
    assert words in " ".join(text.split())
    other = rows_of("tuned_zen4.csv")
    gains = [float(row["gain"]) for row in other]
    above = {name: mean for name, of_class in _classes(other).items() if (mean := geometric_mean(of_class)) > 1.05}
    assert {*above} == {("depthwise", "BWD_W", "NXC")}
    words = (
        f"became {min(gains):.2f} to {max(gains):.2f} times as fast. Only depthwise weight gradients gain more than 5 %"
    )
    assert words in " ".join(text.split())
    assert f"there, {100 * (above['depthwise', 'BWD_W', 'NXC'] - 1):.0f} % on average." in " ".join(text.split())


def test_gains_of_calibration_are_those_of_the_committed_run() -> None:
    text, classes = (DOCS / "settings.md").read_text(encoding="utf-8"), _classes(rows_of("calibrated_zen4.csv"))
    means = [geometric_mean(gains) for gains in classes.values()]
    average = geometric_mean(itertools.chain(*classes.values()))
    words = f"suites of layers became {min(means):.2f} to {max(means):.2f} times as fast, {average:.2f} on average."
    assert words in " ".join(text.split())

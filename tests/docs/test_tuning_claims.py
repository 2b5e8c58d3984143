"""The page of settings: what tuning gains in the committed runs."""

from __future__ import annotations

import itertools
from statistics import geometric_mean

from tests.docs.figures import rows_of
from tests.support.places import DOCS


def test_gains_of_measured_plans_are_those_of_the_committed_run() -> None:
    text, rows = (DOCS / "settings.md").read_text(encoding="utf-8"), rows_of("tuned.csv")
    gains = [float(row["gain"]) for row in rows]
    means = {}
    kinds = {row["suite"] for row in rows}, ("FWD_D", "BWD_D", "BWD_W"), ("NXC", "NCX")
    for suite, direction, layout in itertools.product(*kinds):
        start = f"{direction} f32 {layout}"
        same = [
            row for row in rows if row["suite"] == suite and row["problem"].removeprefix("deconv ").startswith(start)
        ]
        means[suite, direction, layout] = geometric_mean(float(row["gain"]) for row in same)
    best = max(means, key=lambda name: means[name])
    assert best == ("depthwise", "FWD_D", "NXC")
    slower, faster = (round(100 * abs(gain - 1)) for gain in (min(means.values()), means[best]))
    words = f"Averaged over a suite of layers, tuning makes them {slower} % slower to {faster} % faster."
    assert words in " ".join(text.split())
    words = f"Single f32 layers became {min(gains):.2f} to {max(gains):.2f} times as fast on"
    assert words in " ".join(text.split())
    other = rows_of("tuned_zen4.csv")
    gains, classes = [float(row["gain"]) for row in other], dict[tuple[str, str], list[float]]()
    for row in other:
        direction = row["problem"].removeprefix("deconv ").split()[0]
        classes.setdefault((row["suite"], direction), []).append(float(row["gain"]))
    above = {name: mean for name, of_class in classes.items() if (mean := geometric_mean(of_class)) > 1.05}
    assert {*above} == {("depthwise", "BWD_W")}
    words = (
        f"became {min(gains):.2f} to {max(gains):.2f} times as fast. Only depthwise weight gradients gain more than 5 %"
    )
    assert words in " ".join(text.split())
    assert f"there, {100 * (above['depthwise', 'BWD_W'] - 1):.0f} % on average." in " ".join(text.split())


def test_gains_of_calibration_are_those_of_the_committed_run() -> None:
    text, classes = (DOCS / "settings.md").read_text(encoding="utf-8"), dict[tuple[str, ...], list[float]]()
    for row in rows_of("calibrated_zen4.csv"):
        direction, _, layout = row["problem"].removeprefix("deconv ").split()[:3]
        classes.setdefault((row["suite"], direction, layout), []).append(float(row["gain"]))
    means = [geometric_mean(gains) for gains in classes.values()]
    average = geometric_mean(itertools.chain(*classes.values()))
    words = f"suites of layers became {min(means):.2f} to {max(means):.2f} times as fast, {average:.2f} on average."
    assert words in " ".join(text.split())

"""``convgrad calibrate``: the speeds of this machine, measured and kept for later processes."""

from __future__ import annotations

import argparse

from convgrad.cli.console import complain, say
from convgrad.cli.exits import DONE, WRONG
from convgrad.engines.llvm import isas
from convgrad.engines.llvm.calibrate import calibrated, speeds
from convgrad.engines.llvm.speeds import keep
from convgrad.host import core_count

NEAR = 1.5  # a prediction is near a time if neither is more than this times the other


def main(options: argparse.Namespace) -> int:
    """Measure and print the speeds and how well they predict, and keep them unless the options say otherwise."""
    isa = isas.isa()
    if isa is None:
        complain(f"there are no kernels: {isas.why_no_isa()}")
        return WRONG
    old = isas.uncalibrated(isa)
    new, ratios = calibrated(old, core_count())
    for name, speed in speeds(new).items():
        say(f"{name:18} {speed:8.3g}  (before: {getattr(old, name):.3g})")
    before, after = (sum(1 / NEAR < ratio < NEAR for ratio in column) for column in zip(*ratios, strict=True))
    say(f"predictions within a factor of {NEAR}: {after} of {len(ratios)} plans (before: {before})")
    if not options.no_keep and (trouble := keep(isa, speeds(new))):
        complain(f"the speeds are not kept: {trouble}")
        return WRONG
    return DONE

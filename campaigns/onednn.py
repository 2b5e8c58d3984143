"""The graphs of an oneDNN checkout, judged by one call of ``convgrad verify``: time, peak memory and counts."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from campaigns.command import parser_of
from tests.cases.onednn_files import INCONSISTENT, INPUTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every convolution of every consistent graph is ok, and 1 otherwise."""
    parser = parser_of("onednn", "Judge all convolutions in the graphs of an oneDNN checkout.")
    parser.add_argument("onednn", metavar="ONEDNN", type=Path, help="the folder of the checkout")
    parser.add_argument("--call", metavar="MODULE:FUNCTION", default="convgrad:run", help="the function to judge")
    options = parser.parse_args(arguments)
    paths = sorted((options.onednn / INPUTS / "graph").rglob("*.json"))
    if not paths:
        print(f"skipped: {options.onednn / INPUTS / 'graph'} must have graphs of oneDNN")
        return 0
    command = [sys.executable, "-m", "convgrad", "verify", *map(str, paths), "--call", options.call, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = list(map(json.loads, process.stdout))
    cases, total = [one for one in printed if "case" in one], printed[-1]
    for one in cases:
        if not one["ok"]:
            print(f"{one['case']}  {one.get('text') or one['error']}\n  reproduce: {one['reproduce']}")
    if "summary" not in total:
        print(f"not judged: {total}")
        return 1
    unexpected = [text for text in total["refused"] if Path(text.partition(": ")[0]).name not in INCONSISTENT]
    for text in total["refused"]:
        print(f"refused: {text}")
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # it is in KiB on Linux
    words = ", ".join(f"{number} {outcome}" for outcome, number in total["summary"].items())
    print(f"{len(paths)} graphs, {len(total['empty'])} without a convolution, {len(total['refused'])} refused")
    print(f"{total['cases']} cases: {words} in {total['time_s']:.0f} s, at most {peak_mib:.0f} MiB")
    return int(bool(unexpected) or set(total["summary"]) != {"ok"})

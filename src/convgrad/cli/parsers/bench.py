"""The arguments of ``convgrad bench``."""

from __future__ import annotations

import argparse

from convgrad.cli.parsers.parser import Parser
from convgrad.cli.parsers.texts import MAX_ERROR, PROBLEM_LINE, TUNE, positive, times, words


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad bench``."""
    bench = Parser(
        "convgrad bench",
        "Time problems, in turns with other libraries. Results are checked first, and speeds are compared with the "
        "machine's peak.",
        (
            "convgrad bench --suite resnet50 --against torch",
            'convgrad bench "BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1" -o rows.csv',
        ),
    )
    bench.add_argument("problems", metavar="PROBLEM", nargs="*", help=PROBLEM_LINE)
    suites = 'suites that ship with convgrad, or "all"; an unknown name lists the suites'
    bench.add_argument("--suite", metavar="NAME,...", type=words, default=[], help=suites)
    bench.add_argument("--shapes", metavar="FILE", help="a file of problem lines; comments start with #")
    for name, example in (("direction", "FWD_D,BWD_D,BWD_W"), ("type", "f32,bf16,f16"), ("layout", "NXC,NCX")):
        instead = f"replace the {name} of each line by these, such as {example}"
        bench.add_argument(f"--{name}", metavar=f"{name.upper()},...", type=words, default=[], help=instead)
    against = "the libraries to compare with: torch, jax"
    bench.add_argument("--against", metavar="PEER,...", type=words, default=[], help=against)
    bench.add_argument(
        "--threads", type=positive, help="the number of threads of every library (default: all usable cores)"
    )
    bench.add_argument("--max-error", type=times, metavar="TIMES", help=MAX_ERROR)
    bench.add_argument("--tune", action="store_true", help=TUNE)
    bench.add_argument("--repeat", type=positive, default=7, help="the number of rounds of measurement (default 7)")
    bench.add_argument(
        "-o",
        "--output",
        metavar="FILE.csv",
        help="write a row of measurements for each problem, as soon as it is measured",
    )
    bench.add_argument("--json", action="store_true", help="print one JSON object per problem instead of a table")
    bench.add_argument("--force", action="store_true", help="replace the output file if it exists")
    return bench

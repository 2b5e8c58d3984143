"""The arguments of ``convgrad bench``."""

from __future__ import annotations

import argparse

from convgrad.cli.exits import EXIT_CODES
from convgrad.cli.parsers.parser import Parser
from convgrad.cli.parsers.texts import MAX_ERROR, positive, times, words


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad bench``."""
    bench = Parser(
        prog="convgrad bench",
        description="Time problems side by side with other libraries, checked first, against the machine's own peak.",
        epilog=EXIT_CODES,
    )
    lines = "a quoted problem line: [deconv] DIRECTION TYPE DATA_FORMAT[:WEIGHTS_FORMAT] and benchdnn's descriptor"
    bench.add_argument("problems", metavar="PROBLEM", nargs="*", help=lines)
    suites = "suites that ship with convgrad, or all; an unknown name lists them"
    bench.add_argument("--suite", metavar="NAME,...", type=words, default=[], help=suites)
    bench.add_argument("--shapes", metavar="FILE", help="a file of problem lines, with comments from #")
    for name, example in (("direction", "FWD_D,BWD_D,BWD_W"), ("type", "f32,bf16,f16"), ("layout", "NXC,NCX")):
        instead = f"instead of each line's own {name}: one or more, such as {example}"
        bench.add_argument(f"--{name}", metavar=f"{name.upper()},...", type=words, default=[], help=instead)
    against = "libraries to compare with: torch, jax"
    bench.add_argument("--against", metavar="PEER,...", type=words, default=[], help=against)
    bench.add_argument("--threads", type=positive, help="threads of everybody (default: all usable cores)")
    bench.add_argument("--max-error", type=times, metavar="TIMES", help=MAX_ERROR)
    bench.add_argument("--repeat", type=positive, default=7, help="rounds of measurement (default 7)")
    bench.add_argument(
        "-o", "--output", metavar="FILE.csv", help="write a row of all figures for each problem as it goes"
    )
    bench.add_argument("--json", action="store_true", help="print one JSON object a problem instead of a table")
    bench.add_argument("--force", action="store_true", help="replace the output file if it exists")
    return bench

"""The command line of a campaign: chunks of random cases, each with a seed of its own, as many as are asked for."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class Tally(Protocol):
    """What a campaign counts, and what was wrong in it."""

    wrong: list[str]


Counted = TypeVar("Counted", bound=Tally)


def main(
    description: str,
    cases: tuple[str, int],
    chunk: int,
    tally: Counted,
    run: Callable[[int, int, Counted], object],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run as many ``cases``, named and by default that many, as the arguments ask for; return the exit code.

    ``run`` takes a seed, how many cases, at most ``chunk``, and the tally.
    """
    name, number = cases
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(f"--{name}", dest="number", metavar=name.upper(), type=int, default=number)
    parser.add_argument("--seed", type=int, default=0, help=f"of other {name}")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    for at, first in enumerate(range(0, options.number, chunk)):
        told = len(tally.wrong)
        run(1000 * options.seed + at, min(chunk, options.number - first), tally)
        for words in tally.wrong[told:]:
            print(f"wrong: {words}", flush=True)
    print(f"seed {options.seed}, {time.monotonic() - started:.0f} s: {tally}")
    return 1 if tally.wrong else 0

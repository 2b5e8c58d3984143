"""The command line of a campaign: its numbers, and chunks of random cases, each with a seed of its own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

HELP = {"seed": "draw other cases (default: 0)", "first": "start at this one (default: 0)"}


class Tally(Protocol):
    """What a campaign counts, and what was wrong in it."""

    wrong: list[str]


Counted = TypeVar("Counted", bound=Tally)


def parser_of(kind: str, description: str, **numbers: int) -> argparse.ArgumentParser:
    """Return the parser of a campaign: an option for each number, with its default."""
    made = argparse.ArgumentParser(prog=f"python -m campaigns {kind}", description=description)
    for name, number in numbers.items():
        help_text = HELP.get(name, f"how many (default: {number})")
        made.add_argument(f"--{name}", metavar="N", type=int, default=number, help=help_text)
    return made


def run_chunks(
    kind: str,
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
    name, default = cases
    options = parser_of(kind, description, **{name: default}, seed=0).parse_args(arguments)
    number, started = getattr(options, name), time.monotonic()
    for at, first in enumerate(range(0, number, chunk)):
        told = len(tally.wrong)
        run(1000 * options.seed + at, min(chunk, number - first), tally)
        for words in tally.wrong[told:]:
            print(f"wrong: {words}", flush=True)
    print(f"seed {options.seed}, {time.monotonic() - started:.0f} s: {tally}")
    return 1 if tally.wrong else 0

"""Somebody's operators over the public cases and oneDNN's problem files: ``python -m tests.verify.judge_all``.

``--call judge_torch:run`` names whose, of ``examples``. Prints a line for each verdict that is not ok; the exit
code is 0 where all are. Collections and files of benchdnn's descriptors are named as arguments; without any, all
collections are run. Where a call ends the process, that is said, and a new one goes on behind it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NoReturn

from convgrad.cases import collection
from convgrad.cases.case import Case
from convgrad.descriptor import write_descriptor
from convgrad.verify.fill import KINDS, Kind
from tests.support.descriptor_files import read_descriptors
from tests.support.judging import judged_in_full
from tests.support.places import EXAMPLES

sys.path.insert(0, str(EXAMPLES))


def cases_of(source: str, batch: int | None = None) -> Iterator[Case]:
    """Yield the cases of a collection, or of each role, type and layout of a file's descriptors."""
    if source in collection.NAMES:
        yield from collection.cases(source)
        return
    for number, one in enumerate(read_descriptors(Path(source).read_text()), 1):
        descriptor = write_descriptor(one).partition("n")[0]
        if batch:
            descriptor = descriptor.replace(f"mb{one.batch}", f"mb{min(batch, one.batch)}", 1)
        line = f"{Path(source).name}-{number} {descriptor} types=f32,bf16  # of a file"
        yield from collection.read(line, f"{source}, problem {number}")


def judged(cases: Sequence[Case], kinds: Sequence[Kind], call: str) -> Iterator[tuple[Case, str, str, str]]:
    """Yield each case, the kind of its operands, outcome and verdict; where the call ends the process, that is said."""
    todo = deque(product(cases, kinds))
    while todo:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _child(todo, call, writer)
        os.close(writer)
        with os.fdopen(reader) as lines:
            for line in lines:
                outcome, _, words = line.rstrip("\n").partition(" ")
                yield *todo.popleft(), outcome, words
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if todo:
            yield *todo.popleft(), "crashed", f"CRASHED with exit code {status}, here or before"


def _child(todo: Sequence[tuple[Case, Kind]], call: str, writer: int) -> NoReturn:
    module, _, name = call.partition(":")
    run = getattr(importlib.import_module(module), name)  # in the child alone: threads do not go through a fork
    with os.fdopen(writer, "w") as out:
        for case, kind in todo:
            verdict = judged_in_full(case, run, kind)
            print(verdict.outcome, verdict, file=out, flush=True)
    os._exit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Judge somebody's convolutions.")
    parser.add_argument("--call", default="judge_torch:run", help="MODULE:FUNCTION, of a module of examples/")
    parser.add_argument("sources", nargs="*", default=list(collection.NAMES))
    parser.add_argument("--every", type=int, default=1, help="judge one case of so many")
    parser.add_argument("--fill", nargs="*", default=["integers", "normal"], choices=KINDS, help="kinds of operands")
    parser.add_argument("--batch", type=int, help="images of a file's problems, at most")
    options = parser.parse_args(arguments)
    tally: Counter[str] = Counter()
    for source in options.sources:
        started, found = time.monotonic(), Counter[str]()
        cases = list(cases_of(source, options.batch))[:: options.every]
        for case, kind, outcome, words in judged(cases, options.fill, options.call):
            found[outcome] += 1
            if outcome != "ok":
                print(f"{case.name} {kind}: {words}", flush=True)
        print(f"{source}: {dict(found)}, {time.monotonic() - started:.0f} s", flush=True)
        tally += found
    return 0 if set(tally) <= {"ok"} else 1


if __name__ == "__main__":
    sys.exit(main())

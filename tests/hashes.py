"""One hash a problem, the same on every machine: drawn problems, their generated results, the comparison.

``python tests/hashes.py > FILE`` draws problems, computes them with this machine's widest instruction set, or the one
that CONVGRAD_MAX_ISA names, and prints a row for each: the SHA-256 of the result's bytes in canonical order, and the
problem. The last row is the hash of all. ``python tests/hashes.py --against FILE`` computes the problems of a file that
was written elsewhere, and exits with 1 where a hash differs. ``tests/golden/hashes.txt`` is a Xeon's, with AMX.
The exit code is 2 if the generated engine is not selected.

On any Linux, ``qemu-aarch64`` of Debian's package ``qemu-user`` runs it with NEON:

    qemu-aarch64 -L ROOT -E PYTHONPATH=src:SITE ROOT/usr/bin/python3.11 tests/hashes.py --against FILE

ROOT holds a Python for aarch64. For example, unpack these arm64 packages of Debian by ``dpkg -x PACKAGE ROOT``: libc6,
libgcc-s1, libstdc++6, zlib1g, libexpat1, libffi8, libpython3.11-minimal, libpython3.11-stdlib, python3.11-minimal.
SITE holds wheels that ``python -m zipfile -e`` unpacked. Fetch them by ``pip download --only-binary=:all: --platform
manylinux_2_28_aarch64 --python-version 3.11 numpy ml_dtypes llvmlite``.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a program it finds only what is beside it

from convgrad import engines
from convgrad.engines.llvm import isas
from convgrad.engines.llvm.execute import executable
from convgrad.engines.llvm.winograd.run import tiled
from convgrad.engines.settings import count
from convgrad.plan.machine import Isa
from tests.support.hash_problems import DATA, FEW, NORMALS, SAID, drawn, operands_and_out, problems

FILE = Path(__file__).parent / "golden" / "hashes.txt"
DONE, DIFFERS = 0, 1  # exit codes; 2 where nothing could be computed or read


def hash_of(words: str, isa: Isa) -> str:
    """Return the SHA-256 of what the generated engine computes with an instruction set; it must be the choice."""
    found = hashlib.sha256()
    for one in problems(words):
        choice = engines.choose(one)
        if choice.engine != "generated":
            raise ValueError(f"the generated engine must be the choice; got {choice}, of {words}")
        operands, out = operands_and_out(one, words)
        lies = tuple(array.strides for array in (*operands, out))
        prepare = tiled if one.algorithm else executable
        prepare(one, lies, isas.machine(isa), count(None)).execute(operands, out)
        found.update(np.ascontiguousarray(out).tobytes())
    return found.hexdigest()


def hash_of_all(hashes: Iterable[str]) -> str:
    """Return the hash that the last row has."""
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def hashes_in(path: Path) -> dict[str, str]:
    """Return the hashes of a file by problem; its last row says how many there must be."""
    rows = [line.split("  ", 1) for line in path.read_text().splitlines() if line and line[0] != "#"]
    if not rows[1:] or rows[-1][1:] != [f"all of {len(rows) - 1}"]:
        raise ValueError(f"a file of hashes must end with the hash of all its problems; {path} does not")
    return {words: found for found, words in rows[:-1]}


def print_hashes(lines: Iterable[str]) -> dict[str, str]:
    """Compute problems, print a row for each as it is done and one of all; return the hashes by problem."""
    isa, found = isas.isa(), {}
    if isa is None:
        raise ValueError(f"the generated engine must be the choice; got numpy: {isas.why_no_isa()}")
    print(f"# computed with {isa}", flush=True)
    for words in lines:
        found[words] = hash_of(words, isa)
        print(f"{found[words]}  {words}", flush=True)
    print(f"{hash_of_all(found.values())}  all of {len(found)}", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the hashes of drawn problems, or compare those of a file's."""
    parser = argparse.ArgumentParser(prog="hashes.py", description="Print hashes of results, or compare with a file's.")
    parser.add_argument("-n", type=int, default=180, help="how many weight and bias gradients to draw (default 180)")
    parser.add_argument("-d", type=int, default=60, help="how many forwards and data gradients to draw (default 60)")
    parser.add_argument("-f", type=int, default=200, help="how many of those of few channels to draw (default 200)")
    parser.add_argument("--against", metavar="FILE", type=Path, help="compute the problems of this file, and compare")
    options = parser.parse_args(arguments)
    try:
        if options.against is None:
            said = (*SAID, *NORMALS) if options.d else ()
            print_hashes((*drawn(options.n), *drawn(options.d, DATA), *said, *drawn(options.f, FEW)))
            return DONE
        expected = hashes_in(options.against)
        found = print_hashes(expected)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    differing = [words for words in expected if found[words] != expected[words]]
    for words in differing:
        print(f"differs: {words}", file=sys.stderr)
    print(f"# {len(expected) - len(differing)} of {len(expected)} problems have the hash of {options.against}")
    return DIFFERS if differing else DONE


if __name__ == "__main__":
    raise SystemExit(main())

"""One digest of 400 bf16 problems, however their terms are taken: in pairs or not, on any threads, in any layout.

``python -m tests.engines.pair_hashes`` computes each problem in all ways, prints its hash, how many panels were taken
in pairs and how many not, and the digest of all; it exits with 1 where two ways differ. ``--limit 0`` takes all panels
in pairs, which must be seen; ``--every 7`` takes fewer problems, ``--part 0/2`` every second of those.
"""

from __future__ import annotations

import argparse
import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import prod

import ml_dtypes
import numpy as np

from convgrad.engines.llvm import isas
from convgrad.engines.llvm.execute import executable_of
from convgrad.formats import BF16
from convgrad.notation import read, write
from convgrad.plan.machine import ISAS, Isa, Machine
from convgrad.plan.pairs import MIN_EXPONENT_SUM
from convgrad.plan.passes import plans, view_of
from convgrad.spec.problem import Problem
from tests.support.engine_helpers import HOST, Array, empty, lying, modelled
from tests.support.hash_problems import DATA, FEW, GRADIENTS, drawn, problems, shape_of, values

FAMILIES = ((200, GRADIENTS), (140, DATA), (60, FEW))
THREADS = (1, 2, 3, 4)
NEVER, ALWAYS = 1 << 20, 0  # limits under which no panel is taken in pairs, and every one
OTHER = {"NXC": "NCX", "NCX": "NXC", "XIO": "OIX", "OIX": "XIO", "XOI": "IOX", "IOX": "XOI"}
Bits = np.random.PCG64


@dataclass(frozen=True)
class Way:
    """How terms are taken: by an instruction set, in pairs where the sum of least exponents reaches a limit."""

    name: str
    isa: Isa
    limit: int = MIN_EXPONENT_SUM


@cache
def ways(limit: int = MIN_EXPONENT_SUM) -> tuple[Way, ...]:
    """All ways of this machine; "flushed" is what the instruction does, "fused" two multiply-adds in its place."""
    least = ISAS[HOST[-1]]
    found = [Way(name, ISAS[name]) for name in HOST]
    found += [Way(f"pairs {word}", modelled(least, word), limit) for word in ("flushed", "fused")]
    found.append(Way("none in pairs", modelled(least, "flushed"), NEVER))
    return (*found, *(Way(isa.name, isa, limit) for isa in isas.host_isas() if isa.pairs))


# -- operands --------------------------------------------------------------------------------------------------------


def _of_exponents(low: int, high: int, *, zeros: int = 6) -> Callable[[tuple[int, ...], Bits], Array]:
    """Values of such biased exponents, one in so many zero; one has the least."""

    def made(shape: tuple[int, ...], bits: Bits) -> Array:
        raw = bits.random_raw(prod(shape))
        words = raw & 0x807F | low + (raw >> 20) % (high - low + 1) << 7
        words = np.where((raw >> 40) % zeros == 0, raw & 0x8000, words)
        words[:1] = low << 7
        return words.astype(np.uint16).view(ml_dtypes.bfloat16).reshape(shape)

    return made


def _any_bits(shape: tuple[int, ...], bits: Bits) -> Array:
    return bits.random_raw(prod(shape)).astype(np.uint16).view(ml_dtypes.bfloat16).reshape(shape)


def _some_denormal(shape: tuple[int, ...], bits: Bits) -> Array:
    return values(shape, BF16, bits)


def _banded(shape: tuple[int, ...], bits: Bits) -> Array:
    """Ordinary values in some channels, small ones in the others: some panels are taken in pairs."""
    ordinary, small = (_of_exponents(*range_)(shape, bits) for range_ in ((100, 134), (30, 50)))
    channels = np.arange(shape[1]).reshape(-1, *(1,) * (len(shape) - 2))
    return np.where(channels % 48 < 32, ordinary, small)


def _with_special(shape: tuple[int, ...], bits: Bits) -> Array:
    """Ordinary values, and among them an infinity, a NaN, a zero of either sign."""
    made = _of_exponents(110, 134)(shape, bits)
    places = bits.random_raw(4) % made.size
    made.view(np.uint16).flat[places] = (0x7F80, 0x7FC0, 0, 0x8000)
    return made


def _alternating(shape: tuple[int, ...], bits: Bits) -> Array:
    """129 and 128 of the least exponents, of either sign: neighbours' products cancel to the least that there is."""
    turn = np.indices(shape).sum(0) + int(bits.random_raw() % 2)
    words = (MIN_EXPONENT_SUM // 2 << 7) + np.where(turn % 2, 1, 0) + np.where(turn % 4 > 1, 0x8000, 0)
    return words.astype(np.uint16).view(ml_dtypes.bfloat16)


MINIMUM = MIN_EXPONENT_SUM // 2
KINDS = (  # of the first operand, and of the second
    (_of_exponents(110, 134), _of_exponents(100, 130)),
    (_of_exponents(MINIMUM, 75), _of_exponents(MINIMUM, 73)),  # sums of 142
    (_of_exponents(MINIMUM - 1, 75), _of_exponents(MINIMUM, 73)),  # of 141
    (_alternating, _alternating),
    (_banded, _of_exponents(100, 134)),
    (_any_bits, _any_bits),
    (_with_special, _of_exponents(100, 134)),
    (_some_denormal, _of_exponents(100, 134)),
    (_of_exponents(200, 254), _of_exponents(150, 200)),  # that overflow
    (_of_exponents(50, 60), _of_exponents(60, 75)),  # results are denormal,
    (_of_exponents(0, 3), _of_exponents(110, 134)),  # denormals count, which the instruction takes for zeros
    (_of_exponents(1, 1, zeros=1), _of_exponents(0, 0)),  # nothing but zeros and denormals
)


def operands_of(one: Problem, words: str, number: int) -> tuple[list[Array], Array]:
    """Return canonical operands, and an old value."""
    bits = np.random.PCG64(zlib.crc32(words.encode()))
    kinds = KINDS[number % len(KINDS)][:: 1 - 2 * (number // len(KINDS) % 2)]
    made = [kind(shape_of(one, tensor), bits) for tensor, kind in zip(one.operands, kinds, strict=False)]
    made += [values(shape_of(one, tensor), BF16, bits) for tensor in one.operands[2:]]
    return made, values(shape_of(one, one.output), one.output_format, bits)


# -- results ---------------------------------------------------------------------------------------------------------


def all_problems() -> Iterator[str]:
    """Yield the words of 400 problems of all roles and classes, of bf16."""
    for number, family in FAMILIES:
        for words in drawn(number, family):
            line, way, output = words.rsplit(None, 2)
            yield f"{write(replace(read(line), format=BF16))} {way} {output}"


def result(
    one: Problem, given: Sequence[Array], old: Array, way: Way, threads: int, turned: bool, l2_bytes: int
) -> tuple[bytes, tuple[int, int]]:  # fmt: skip
    """Return a result's bytes, and how many panels were taken in pairs and how many not."""
    if turned:
        tensors = zip((*one.operands, one.output), one.layouts, strict=True)
        layouts = tuple(layout if tensor == "bias" else OTHER[layout] for tensor, layout in tensors)
        one = replace(one, layouts=layouts)
    operands = [lying(array, layout) for array, layout in zip(given, one.layouts, strict=False)]
    out = empty(one)
    if one.accumulate:
        out[...] = old
    view = view_of(one, [array.strides for array in operands], out.strides)
    found = plans(one, view, Machine(way.isa, l2_bytes=l2_bytes), threads)
    plan = next((plan for plan in found if getattr(plan.spec, "k_per_add", 1) == 2), found[0])
    run = executable_of(plan, one, operands, out)
    if run.paths is not None:
        run.arguments[run.names.index("min_sum")] = way.limit
    run.execute(operands, out)
    pairs, single = (0, 0) if run.paths is None else run.paths.tolist()
    return np.ascontiguousarray(out).tobytes(), (pairs, single)


def hash_of(
    words: str, number: int, among: Sequence[Way], threads: Sequence[int] = THREADS,
    turns: Sequence[bool] = (False, True),
) -> tuple[str, list[str], tuple[int, int]]:  # fmt: skip
    """Return the hash of a problem in the first way, the ways that have another, and how panels were taken in all."""
    first, other, counted = hashlib.sha256(), [], [0, 0]
    for part, one in enumerate(problems(words)):
        given, old = operands_of(one, words, number)
        wanted = b""
        for way, count, turned in product(among, threads, turns):
            found, paths = result(one, given, old, way, count, turned, 1 << 14 + (number + part) % 7)
            wanted = wanted or found
            if way.limit != NEVER:
                counted = [a + b for a, b in zip(counted, paths, strict=True)]
            if found != wanted:
                other.append(f"{way.name}, {count} threads{', the other layout' * turned}")
        first.update(wanted)
    return first.hexdigest(), other, (counted[0], counted[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the hashes of all problems, and of all of them."""
    parser = argparse.ArgumentParser(prog="pair_hashes.py", description="Hash bf16 results, in pairs of terms and not.")
    parser.add_argument("--every", type=int, default=1, help="of how many problems one is computed (default 1)")
    parser.add_argument("--part", default="0/1", help="which of how many parts of them, as 0/2")
    parser.add_argument(
        "--limit", type=int, default=MIN_EXPONENT_SUM, help=f"of least exponents (default {MIN_EXPONENT_SUM})"
    )
    options = parser.parse_args(arguments)
    part, parts = map(int, options.part.split("/"))
    everything, differing, paths = hashlib.sha256(), 0, []
    chosen = list(enumerate(all_problems()))[:: options.every][part::parts]
    for number, words in chosen:
        found, other, taken = hash_of(words, number, ways(options.limit))
        everything.update(found.encode())
        differing += bool(other)
        paths.append(taken)
        others = f"  DIFFERS: {other[:2]}" if other else ""
        print(f"{found[:16]}  {taken[0]:6} pairs {taken[1]:6} single  {words}{others}", flush=True)
    both = sum(pairs > 0 and single > 0 for pairs, single in paths)
    print(
        f"{everything.hexdigest()}  all of {len(chosen)}; {sum(p > 0 for p, _ in paths)} have panels in pairs, "
        f"{sum(s > 0 for _, s in paths)} single ones, {both} both; {differing} differ"
    )
    return int(differing > 0)


if __name__ == "__main__":
    raise SystemExit(main())

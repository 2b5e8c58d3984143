"""Mutants of valid cases of every notation: each is read, or refused by an error that names the place; nothing else.

``python -m campaigns cases --mutants 100000 --seed 7`` reads so many, and their arrays, in a few minutes. The first
that raises anything else, or takes too long, ends it, with the seed and what was read.
"""

from __future__ import annotations

import re
import resource
import struct
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.command import parser_of
from convgrad import cases
from convgrad.errors import ConvgradError, FileError
from convgrad.graph.limits import Limits
from tests.cases.sources import Base, bases, npy
from tests.support.helpers import within

SECONDS = 5.0  # of processor time a mutant may take
GROWTH_KIB = 256 << 10
LIMITS = Limits(file_bytes=1 << 20, op_bytes=1 << 19, memory_bytes=1 << 24)
LONGEST_MESSAGE = 4000
AT = re.compile(r":\d+:\d+: ")


# -- mutations ---------------------------------------------------------------------------------------------------------

WORDS = [
    *(
        "0",
        "-1",
        "1",
        "2",
        "3",
        "7",
        "65536",
        "2147483648",
        "9" * 18,
        "9" * 19,
        "1" + "0" * 400,
        "1e999",
        "NaN",
        "null",
    ),
    *(
        "",
        " ",
        "\n",
        "\t",
        "\x00",
        "\x1b[2J",
        "é",
        "\u2028",
        "\ud800",
        "\U0001f600",
        "١",
        "²",
        "\\",
        '"',
        "'",
        "#",
        "=",
        "--",
    ),
    *(
        "{",
        "}",
        "[",
        "]",
        "[[",
        "(",
        ")",
        "<",
        ">",
        ",",
        ":",
        "x",
        "_",
        "%",
        "?",
        "true",
        "{}",
        "[]",
        "-F",
        "--dir=",
        "n",
    ),
    *(
        "b01f_01io->b01f",
        "f32[2,3]",
        "tensor<2xf32>",
        "window={}",
        "--batch=cases.txt",
        "--batch=/dev/zero",
        "mb0",
        "ic",
    ),
]
_TOKEN = re.compile(r"\w+|[^\w\s]|\s+")

Bytes = bytes
Rng = np.random.Generator


def _pick(rng: Rng, items: Sequence[Any]) -> Any:
    return items[int(rng.integers(len(items)))]


def _span(rng: Rng, length: int) -> tuple[int, int]:
    """Return a short stretch of so many places, or now and then a long one."""
    start = int(rng.integers(length + 1))
    most = 12 if rng.random() < 0.8 else max(length // 2, 1)
    return start, min(start + int(rng.integers(1, most + 1)), length)


def _by_bytes(rng: Rng, data: Bytes) -> Bytes:
    """Cut out, repeat, overwrite or end a stretch of bytes, or flip a bit."""
    start, stop = _span(rng, len(data))
    piece, at = data[start:stop], int(rng.integers(len(data) + 1))
    number = _pick(rng, [0, 1, 255, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1])
    patch = struct.pack("<Q", number)[: _pick(rng, [1, 2, 4, 8])]
    return _pick(
        rng,
        [
            data[:start],
            data[:start] + data[stop:],
            data[:at] + piece + data[at:],
            data[:start] + rng.bytes(stop - start) + data[stop:],
            data[:start] + patch + data[start + len(patch) :],
            data[:start] + bytes(b ^ 1 << int(rng.integers(8)) for b in data[start : start + 1]) + data[start + 1 :],
        ],
    )


def _by_tokens(rng: Rng, data: Bytes) -> Bytes:
    """Replace, repeat, drop or exchange words, numbers and signs of a text."""
    tokens = _TOKEN.findall(data.decode("utf-8", "surrogateescape"))
    if not tokens:
        return data
    at, other = (int(rng.integers(len(tokens))) for _ in range(2))
    if rng.random() < 0.5:  # numbers are where the meaning is
        at = _pick(rng, [i for i, token in enumerate(tokens) if token[0].isdigit()] or [at])
    kind = int(rng.integers(6))
    if kind == 0:
        tokens[at] = _pick(rng, WORDS)
    elif kind == 1:
        tokens[at], tokens[other] = tokens[other], tokens[at]
    elif kind == 2:
        del tokens[at]
    elif kind == 3:
        tokens.insert(other, tokens[at])
    elif kind == 4:
        tokens.insert(at, _pick(rng, WORDS))
    elif tokens[at].isdecimal():
        tokens[at] = str(max(int(tokens[at][:18]) + int(rng.integers(-2, 3)), 0))
    return "".join(tokens).encode("utf-8", "surrogatepass")


def _by_lines(rng: Rng, data: Bytes) -> Bytes:
    """Repeat, drop, exchange or join lines."""
    lines = data.split(b"\n")
    at, other = (int(rng.integers(len(lines))) for _ in range(2))
    kind = int(rng.integers(4))
    if kind == 0:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines.insert(other, lines[at])
    else:
        lines[at : at + 2] = [b" ".join(lines[at : at + 2])]
    return b"\n".join(lines)


MUTATIONS: list[Callable[[Rng, Bytes], Bytes]] = [_by_tokens, _by_tokens, _by_tokens, _by_tokens, _by_lines, _by_bytes]


def mutant(rng: Rng, base: Base) -> Base:
    """Return a source with some of its files changed, or, now and then, one of them absent, or of nothing but noise."""
    files = dict(base.files)
    for _ in range(int(rng.geometric(0.6))):
        name = base.read if base.read in files and rng.random() < 0.8 else _pick(rng, sorted(files))
        binary = not base.lines and not name.endswith(".json")
        change = _by_bytes if binary else _pick(rng, MUTATIONS)
        files[name] = change(rng, files[name])
    fate = rng.random()
    if fate < 0.01:
        files[_pick(rng, sorted(files))] = rng.bytes(int(rng.integers(200)))
    elif fate < 0.02 and len(files) > 1:
        del files[_pick(rng, sorted(files))]
    if base.lines and rng.random() < 0.7:  # one line of a text, so that the others' errors do not hide its own
        name = base.read
        files[name] = _pick(rng, files[name].split(b"\n")) if base.name == "lines" else files[name]
    return Base(base.name, files, base.read, base.lines)


# -- what is asserted of each ------------------------------------------------------------------------------------------


def write(one: Base, folder: Path) -> Path:
    """Write the files of a source into a folder, and return the file or the folder to read."""
    for name, data in one.files.items():
        archive, _, member = name.partition(".npz/")
        if member:
            with zipfile.ZipFile(folder / f"{archive}.npz", "a") as file:
                header = member == "aten.json"
                array = npy(np.array(data.decode("utf-8", "replace"))) if header else data
                file.writestr("aten.npy" if header else member, array)
            continue
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return folder / one.read if one.read else folder


def check(one: Base, folder: Path) -> str:
    """Return what became of a source, or raise whatever should not have come; the folder is empty before and after."""
    source = write(one, folder)
    try:
        return _read(source, one)
    finally:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def _read(source: Path, one: Base) -> str:
    outcome = "nothing"
    try:
        for case in cases.read(source, LIMITS):
            outcome = "unsupported" if case.unsupported else "read"
            assert re.fullmatch(r"[\w+=-]+", case.name, re.ASCII), case.name
            if case.arrays is not None:
                assert case.arrays().operands
    except ConvgradError as error:
        refused = error
    else:
        return outcome
    message = str(refused)
    assert isinstance(refused, FileError), type(refused)
    assert message.isprintable(), ascii(message)
    assert len(message) < LONGEST_MESSAGE, message[:200]
    assert message.startswith("$") or str(source.parent) in message, message
    assert not one.lines or AT.search(message) or "it has none" in message, message
    return "refused"


def typed(text: str) -> str:
    """Return what became of a text as it may be typed for a problem."""
    try:
        return "read" if list(cases.read(text, LIMITS)) else "nothing"
    except ConvgradError as error:
        refused = error
    assert str(refused).isprintable()
    return "refused"


def fuzz(seed: int, count: int, progress: Callable[[int], None] = lambda number: None) -> Counter[str]:
    """Read mutants, by turns of every notation; raise with the seed and the files at the first that fails."""
    sources = bases()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(count):
            rng = np.random.default_rng([seed, number])
            base = sources[number % len(sources)]
            one = mutant(rng, base)
            try:
                with within(SECONDS):
                    counts[f"{base.name}: {check(one, folder)}"] += 1
                    if base.lines:
                        counts[f"typed: {typed(one.files.get(one.read, b'').decode('utf-8', 'replace'))}"] += 1
            except Exception as error:
                shown = ascii({file: data[:1000] for file, data in one.files.items()})
                raise AssertionError(
                    f"seed [{seed}, {number}]: {type(error).__name__} {str(error)!a}: {shown}"
                ) from error
            progress(number)
    return counts


def peak_kib() -> int:
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("cases", "Read mutants of valid cases of every notation.", mutants=10_000, seed=0)
    options = parser.parse_args(arguments)
    started, before = time.monotonic(), peak_kib()
    try:
        counts = fuzz(options.seed, options.mutants)
    except AssertionError as error:
        print(error)
        return 1
    print(f"{options.mutants} mutants in {time.monotonic() - started:.0f} s, {(peak_kib() - before) >> 10} MiB more")
    for name, count in sorted(counts.items()):
        print(f"  {name}: {count}")
    return 0

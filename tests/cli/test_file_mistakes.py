"""Mistakes with files on the command line: each is one line, an exit code that says whose it was, and no traceback."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, reduce
from pathlib import Path

import numpy as np
import pytest

from convgrad.cli import main
from convgrad.functional.call import Prepared
from tests.support.file_makers import ESCAPE, LONG, as_nobody, fill
from tests.support.places import EXAMPLES
from tests.support.tiers import tiers

STEP = str(EXAMPLES / "digits_step.json")
SUM = ("run", "BiasAddBackward")
MADE_UP = (*SUM, "--shapes", "2x4096")  # a result of 16 KiB
LINE = "BWD_W f32 NXC mb1ic4ih5oc4oh5kh3ph1"


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow beyond 4 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def made_meanwhile(name: str) -> Iterator[None]:
    """Somebody else makes a file while ours is computed."""
    execute = Prepared.execute

    def late(self: Prepared, *arguments: object, **rest: object) -> object:
        Path(name).write_text("precious")
        return execute(self, *arguments, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Prepared, "execute", late)
        yield
    assert Path(name).read_text() == "precious"
    Path(name).unlink()


@contextmanager
def printing_to(make: Callable[[], object]) -> Iterator[None]:
    """Standard output is something else."""
    output = make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        yield
    if output is not None:
        output.close()  # nothing may be left in it that cannot be written


def full_device() -> object:
    return open("/dev/full", "w")


def closed_pipe() -> object:
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "w")


FULL, PIPE, CLOSED = (partial(printing_to, make) for make in (full_device, closed_pipe, lambda: None))

LATE = partial(made_meanwhile, "late.npy")

# What is done, the exit code, words of the line on standard error, and under what circumstances.
READ: list[tuple] = [
    ((*SUM, "none.npy"), 3, "none.npy: cannot be read: No such file"),
    ((*SUM, "nowhere/a.npy"), 3, "nowhere/a.npy: cannot be read: No such file"),
    ((*SUM, "a.npy/b.npy"), 3, "cannot be read: Not a directory"),
    ((*SUM, "dir.npy"), 3, "dir.npy: cannot be read: Is a directory"),
    ((*SUM, "fifo.npy"), 3, "must be a regular file"),
    ((*SUM, "fifo.npz"), 3, "must be a regular file"),
    ((*SUM, "fifo.safetensors"), 3, "must be a regular file"),
    ((*SUM, "zero.npy"), 3, "must be a regular file"),
    ((*SUM, "zero.safetensors"), 3, "must be a regular file"),
    ((*SUM, "socket.npy"), 3, "socket.npy: cannot be read: No such device"),
    ((*SUM, "loop.npy"), 3, "Too many levels of symbolic links"),
    ((*SUM, f"{LONG}.npy"), 3, "File name too long"),
    ((*SUM, f"{ESCAPE}.npy"), 3, "?[31mred?]0;title?.npy: cannot be read: No such file"),
    ((*SUM, "secret.npy"), 3, "secret.npy: cannot be read: Permission denied", as_nobody),
    ((*SUM, "lines.txt"), 3, "the name must end in .npy, .npz, .safetensors, .pt, .zarr; got .txt"),
    ((*SUM, "text.npy"), 3, "text.npy: cannot be read as .npy"),
    ((*SUM, "a.npy:key"), 3, "a .npy file has one array and no keys; got key 'key'"),
    ((*SUM, "a.npy", "--limit", "memory_bytes=10"), 3, "the array must fit 10 bytes (memory_bytes); the size is 152"),
    ((*SUM, "flat.npy"), 2, "BiasAddBackward"),
    ((*SUM, "truncated.npz"), 3, "cannot be read as .npz"),
    ((*SUM, "damaged.npz"), 3, "cannot be read as .npz"),
    ((*SUM, "encrypted.npz"), 3, "encrypted.npz: a.npy: is encrypted"),
    ((*SUM, "method.npz"), 3, "must be stored or deflated, as NumPy writes it; got method 98"),
    ((*SUM, "lzma.npz"), 3, "must be stored or deflated, as NumPy writes it; got method 14"),
    ((*SUM, "twice.npz:a"), 3, "each member must have a name of its own; 2 are called b.npy"),
    ((*SUM, "notes.npz:a"), 3, "notes.txt: must be an array, with a name that ends in .npy"),
    ((*SUM, "two.npz"), 3, "a key is needed; the file has a, b"),
    ((*SUM, "two.npz:c"), 3, "no array 'c'; the file has a, b"),
    ((*SUM, "escape.npz"), 3, "a key is needed; the file has ?[31mred?]0;title?, b"),
    ((*SUM, "bomb.npz:3", "--limit", "memory_bytes=1000000"), 3, "must fit 1000000 bytes (memory_bytes)"),
    ((*SUM, "stored.npz"), 3, "a.npy: announces 1600000128 bytes, but has only 128"),
    ((*SUM, "short.safetensors"), 3, "cannot be read as .safetensors"),
    ((*SUM, "escape.safetensors"), 3, "a key is needed; the file has ?[31mred, b"),
    ((*MADE_UP, "--expect", "none.npy"), 3, "none.npy: cannot be read: No such file"),
    ((*MADE_UP, "--expect", "fifo.npy"), 3, "must be a regular file"),
]
GRAPHS: list[tuple] = [
    (("run", "none.json"), 3, "none.json: cannot be read: No such file"),
    (("run", "fifo.json"), 3, "must be a regular file"),
    (("explain", "fifo.json"), 3, "must be a regular file"),
    (("explain", "zero.json"), 3, "must be a regular file"),
    (("run", "dir.json"), 3, "Is a directory"),
    (("run", f"{LONG}.json"), 3, "File name too long"),
    (("run", f"{ESCAPE}.json"), 3, "?[31mred?]0;title?.json: cannot be read"),
    (("explain", "secret.json"), 3, "Permission denied", as_nobody),
    (("run", "text.json"), 3, "text.json: $: must be JSON"),
    (("explain", "bytes.json"), 3, "bytes.json: $: must be UTF-8"),
    (("run", STEP, "--tensors", "none.npz"), 3, "none.npz: cannot be read: No such file"),
    (("run", STEP, "--tensors", "a.npy"), 3, "arrays by key are read from .npz or .safetensors"),
    (
        ("run", STEP, "--tensors", "bomb.npz", "--limit", "memory_bytes=10000000"),
        3,
        "10 arrays must fit 10000000 bytes",
    ),
    (("explain", STEP, "--tensors", "bomb.npz", "--limit", "memory_bytes=10000000"), 3, "the size is 10487040"),
    (("run", STEP, "--tensors", "escape.npz"), 3, "the graph has no tensor '\\x1b[31mred"),
]
WRITTEN: list[tuple] = [
    ((*MADE_UP, "-o", "nowhere/a.npy"), 3, "nowhere/a.npy: no such directory"),
    ((*MADE_UP, "-o", "a.npy/b.npy"), 3, "no such directory"),
    ((*MADE_UP, "-o", "a.npy"), 3, "a.npy: the file exists; give --force to replace it"),
    ((*MADE_UP, "-o", "dir.npy", "--force"), 3, "dir.npy: cannot be written: it is a directory"),
    ((*MADE_UP, "-o", "fifo.npy", "--force"), 3, "fifo.npy: cannot be written: it is not a regular file"),
    ((*MADE_UP, "-o", "zero.npy", "--force"), 3, "zero.npy: cannot be written: it is not a regular file"),
    ((*MADE_UP, "-o", "loop.npy", "--force"), 3, "Too many levels of symbolic links"),
    ((*MADE_UP, "-o", f"{LONG}.npy"), 3, "File name too long"),
    ((*MADE_UP, "-o", f"{ESCAPE}/a.npy"), 3, "?[31mred?]0;title?/a.npy: no such directory"),
    ((*MADE_UP, "-o", f"new.npz:{ESCAPE}"), 3, "a key to write must be at most 255 printable characters"),
    ((*MADE_UP, "-o", "new.safetensors:__metadata__"), 3, "not __metadata__; got __metadata__"),
    ((*MADE_UP, "-o", "new.npy:key"), 3, "a .npy file has one array and no keys"),
    ((*MADE_UP, "-o", "new.txt"), 3, "the name must end in"),
    ((*MADE_UP, "--type", "bf16", "-o", "new.npz"), 3, "bf16 cannot be kept in .npz files"),
    ((*MADE_UP, "-o", "closed/a.npy"), 3, "closed/a.npy: cannot be written: no permission", as_nobody),
    ((*MADE_UP, "-o", "full.npy"), 3, "full.npy: cannot be written: File too large", full_disk),
    ((*MADE_UP, "-o", "full.npz:key"), 3, "full.npz:key: cannot be written: File too large", full_disk),
    ((*MADE_UP, "-o", "full.safetensors"), 3, "full.safetensors: cannot be written: File too large", full_disk),
    ((*MADE_UP, "-o", "late.npy"), 3, "late.npy: the file exists", LATE),
    (("run", STEP, "-o", "new.npy"), 3, "arrays by key are written to .npz or .safetensors"),
    (("run", STEP, "-o", "full.npz"), 3, "full.npz: cannot be written: File too large", full_disk),
    (("bench", LINE, "-o", "nowhere/a.csv"), 3, "nowhere/a.csv: no such directory"),
    (("bench", LINE, "-o", "fifo.csv", "--force"), 3, "it is not a regular file"),
    (("bench", "--shapes", "nowhere.txt"), 3, "nowhere.txt: cannot be read: No such file"),
    (("bench", "--shapes", "none.txt"), 3, "none.txt: has no problem line"),
    (("bench", "--shapes", "lines.txt"), 3, "lines.txt: a problem has at least one spatial axis"),
    (("bench", "--shapes", "bytes.txt"), 3, "bytes.txt: cannot be read"),
    (("bench", "--shapes", "dir.npy"), 3, "dir.npy: cannot be read: Is a directory"),
]
PRINTED: list[tuple] = [
    (MADE_UP, 3, "standard output cannot be written: No space left on device", FULL),
    ((*MADE_UP, "--json"), 3, "standard output cannot be written: No space left on device", FULL),
    (("run", STEP), 3, "standard output cannot be written: No space left on device", FULL),
    (("run", STEP, "--json"), 3, "standard output cannot be written: Broken pipe", PIPE),
    (("explain", STEP), 3, "standard output cannot be written: No space left on device", FULL),
    (("explain", LINE), 3, "standard output cannot be written: Broken pipe", PIPE),
    (("info",), 3, "standard output cannot be written: No space left on device", FULL),
    (("info", "--json"), 3, "standard output cannot be written: Broken pipe", PIPE),
    (MADE_UP, 3, "standard output cannot be written: it is closed", CLOSED),
    (("--version",), 3, "standard output cannot be written: Broken pipe", PIPE),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory of files as they should not be, in one that anybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        fill(Path(name))
        yield Path(name)


def judged(words: str, errors: str) -> None:
    """Assert that standard error has one printable line, with some words, but for the line that reproduces it."""
    (said,) = [line for line in errors.splitlines() if not line.startswith("reproduce: ")]
    assert said.startswith("convgrad: ")
    assert words in said
    assert "Traceback" not in errors
    assert errors.replace("\n", "").isprintable()


ROWS = READ + GRAPHS + WRITTEN + PRINTED
SHORT = {LONG: "long", STEP: "STEP", ESCAPE: "escape"}


def named(row: tuple) -> str:
    return reduce(lambda text, one: text.replace(*one), SHORT.items(), " ".join(row[0]))


@pytest.mark.every(3)
@pytest.mark.parametrize("row", ROWS, ids=named)
def test_file_mistakes(
    row: tuple, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, code, words, circumstances = (*row, nullcontext)[:4]
    monkeypatch.chdir(place)
    before = sorted(os.listdir())
    with circumstances():
        assert main(arguments) == code
    judged(words, capsys.readouterr().err)
    assert sorted(os.listdir()) == before  # no half of a file, and nothing temporary


CHILDREN = {" > /dev/full": "{} > /dev/full", " | true": "( sleep 0.1; {}; echo $? >&2 ) | true", " >&-": "{} >&-"}


@tiers("where, argument", list(CHILDREN), ["--help", "info"], every=6)
def test_the_interpreter_ends_in_silence(argument: str, where: str) -> None:
    """Where standard output cannot be written, nothing is added to the one line when what is left is flushed."""
    command = CHILDREN[where].format(f"{sys.executable} -m convgrad {argument}")
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    done = subprocess.run(f"{command}; echo $? >&2", shell=True, stderr=-1, text=True, check=False, env=buffered)
    said, code, *_ = done.stderr.splitlines()
    judged("standard output cannot be written: ", said)
    assert int(code) == 3


@pytest.mark.every(2)
@pytest.mark.parametrize("where", ["2> /dev/full", "2>&-"])
def test_the_exit_code_is_told_where_standard_error_cannot_be_written(where: str) -> None:
    command = f"{sys.executable} -m convgrad run BiasAddBackward none.npy {where}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")


def test_a_name_cannot_forge_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "a\n  against oracle  ok.npy"
    np.save(name, np.ones((2, 3), np.float32))
    assert main([*SUM, name]) == 0
    assert main([*SUM, f"no {name}"]) == 3
    out, err = capsys.readouterr()
    assert "\n  against" not in out
    assert len(err.splitlines()) == 1


def test_names_on_standard_output_are_printable(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    np.save(f"{ESCAPE}.npy", np.ones((2, 3), np.float32))
    assert main([*SUM, f"{ESCAPE}.npy", "-o", f"{ESCAPE}.npz"]) == 0
    out = capsys.readouterr().out
    assert "?[31mred?]0;title?.npy" in out
    assert "?[31mred?]0;title?.npz" in out
    assert out.replace("\n", "").isprintable()
    for name in (f"{ESCAPE}.npy", f"{ESCAPE}.npz"):
        os.unlink(name)

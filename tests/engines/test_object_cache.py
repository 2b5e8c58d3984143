"""The kernel cache in files: found whole and ours, or compiled again; never in the way."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import disk, engines, host
from convgrad.cli import info
from convgrad.engines.addresses import address_of
from convgrad.engines.llvm import added, jit, object_cache
from convgrad.engines.llvm.object_cache import LINE, SUFFIX, KernelStore
from convgrad.engines.settings import kernel_directory
from convgrad.errors import FileError, InvalidAttributeError
from convgrad.plan.machine import ISAS, Isa, Machine
from tests.net import FILE, lines_of, problems_of
from tests.support.children import HANG_S
from tests.support.engine_helpers import HOST
from tests.support.places import ROOT

if not HOST:
    pytest.skip("no generated kernels run here", allow_module_level=True)

ISA = ISAS[HOST[0]]
OBJECTS = {b"a" * 32: b"code of a", b"b" * 32: b"", b"c" * 32: bytes(1000)}
NAME = "0" * 64


def generated(directory: Path | None) -> int:
    """Add arrays by a kernel that this call compiles or finds; return how often its IR was generated."""
    made = []

    @functools.wraps(added.module_of)
    def module_of(*described: object) -> str:
        made.append(described)
        return added.module_of(*described)  # type: ignore[arg-type]

    with convgrad.kernel_cache(directory):
        (add,) = jit.functions(ISA, module_of, ISA, "f32", False, add=added.PROTOTYPE)
    terms, out = [np.arange(37, dtype=np.float32), np.full(37, 2, np.float32)], np.empty(37, np.float32)
    add(address_of(out), address_of(np.array([address_of(term) for term in terms])), 2, out.size)
    assert np.array_equal(out, terms[0] + 2)
    return len(made)


def generated_once(directory: str) -> None:
    """Print how often a new process generates IR, having computed."""
    print(json.dumps(generated(Path(directory))))


@pytest.fixture
def kernels(tmp_path: Path) -> Iterator[Path]:
    """A directory that has one kernel."""
    directory = tmp_path / "kernels"
    assert generated(directory) == 1
    yield directory
    object_cache._refused.clear()
    object_cache.store.cache_clear()


def only(directory: Path) -> Path:
    (path,) = directory.iterdir()
    return path


def test_a_kernel_is_compiled_once(kernels: Path) -> None:
    assert generated(kernels) == 0
    path = only(kernels)
    assert (kernels.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)


def test_processes_share_kernels(tmp_path: Path) -> None:
    """Two that begin at once may both compile; neither sees half a file, and later ones compile nothing."""
    code = "import sys; from tests.engines.test_object_cache import generated_once; generated_once(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path / "kernels")]
    both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert {json.loads(one.communicate(timeout=HANG_S)[0]) for one in both} <= {0, 1}
    assert [one.returncode for one in both] == [0, 0]
    only(tmp_path / "kernels")
    assert generated(tmp_path / "kernels") == 0


@pytest.mark.parametrize(
    ("damage", "at"), [*product(["cut"], (0, 10, 40, 60, -1)), *product(["flipped"], (0, 30, 60, 90, 200, -1))]
)
def test_a_damaged_file_is_replaced(kernels: Path, damage: str, at: int) -> None:
    path = only(kernels)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    if damage == "cut":
        del damaged[at:]
    else:
        damaged[at] ^= 4
    path.write_bytes(damaged)
    assert generated(kernels) == 1
    assert only(kernels).read_bytes() == whole
    assert generated(kernels) == 0


def test_a_file_under_another_name_is_not_used(tmp_path: Path) -> None:
    store = KernelStore(tmp_path / "kernels")
    store.write(NAME, OBJECTS)
    assert store.read(NAME) == OBJECTS
    only(store.directory).rename(store.directory / ("1" * 64 + SUFFIX))
    assert store.read("1" * 64) is None


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize(
    "what", ["group writes file", "others write file", "group writes directory", "others own", "link"]
)
def test_what_others_may_write_is_refused(kernels: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning, and the kernel is compiled in memory; the file stays as it is."""
    path = only(kernels)
    before = path.read_bytes()
    match what:
        case "group writes file":
            path.chmod(0o620)
        case "others write file":
            path.chmod(0o602)
        case "group writes directory":
            kernels.chmod(0o770)
        case "others own":
            monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
        case "link":
            path.rename(kernels.parent / "elsewhere")
            path.symlink_to(kernels.parent / "elsewhere")
    said = {"others own": "belongs to user", "link": "is a symbolic link"}.get(what, "others may write to it")
    with pytest.warns(UserWarning, match=said) as warned:
        assert generated(kernels) == 1
    assert len(warned) == 1
    assert generated(kernels) == 1, "without a second warning"
    assert path.read_bytes() == before
    with convgrad.kernel_cache(kernels):
        assert said in info.collect()["kernel cache"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_one_warning_for_all_files_of_a_directory(kernels: Path) -> None:
    store = KernelStore(kernels)
    for at in range(3):
        store.write(f"{at:064}", OBJECTS)
    for path in kernels.iterdir():
        path.chmod(0o620)
    with pytest.warns(UserWarning, match="others may write to it") as warned:
        assert [store.read(f"{at:064}") for at in range(3)] == [None] * 3
    assert len(warned) == 1
    before = only_text(kernels)
    store.write(f"{0:064}", {b"d" * 32: b"other code"})
    assert only_text(kernels) == before, "a refused file is not replaced"


def only_text(directory: Path) -> set[bytes]:
    return {path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("below", ["", ".cache/convgrad", "../home/x"])
def test_a_missing_home_is_not_created(below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("CONVGRAD_CACHE_DIR", f"~/{below}")
    directory = kernel_directory()
    assert directory == home / below
    assert generated(directory) == 1
    assert not home.exists()
    assert f"the home directory {home} does not exist" in info.collect()["kernel cache"]
    home.mkdir()
    assert generated(directory) == 1
    assert generated(directory) == 0
    assert list(home.rglob(f"*{SUFFIX}"))


def test_a_home_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVGRAD_CACHE_DIR", "~nobody-of-this-name/x")
    assert kernel_directory() is None
    assert "no home directory is known for ~nobody-of-this-name/x" in info.collect()["kernel cache"]


@pytest.mark.parametrize(
    "rest", [b"a", b"a" * 32, b"a" * 32 + bytes(7), b"a" * 32 + b"\xff" * 8, b"a" * 32 + b"\2" + bytes(7) + b"x"]
)
def test_a_right_digest_of_incomplete_code(rest: bytes, tmp_path: Path) -> None:
    text = LINE + hashlib.sha256(NAME.encode() + rest).digest() + rest
    (tmp_path / (NAME + SUFFIX)).write_bytes(text)
    assert KernelStore(tmp_path).read(NAME) is None


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_without_a_disk_kernels_are_compiled(tmp_path: Path, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said but by ``convgrad info``."""

    def written(path: Path, **_: object) -> None:
        raise FileError(f"{path}: cannot be written") from OSError(error, os.strerror(error))

    monkeypatch.setattr(object_cache, "written", written)
    assert generated(tmp_path) == 1
    with convgrad.kernel_cache(tmp_path):
        assert os.strerror(error) in info.collect()["kernel cache"]


def test_where_no_directory_can_be_kernels_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        assert generated(place) == 1
        with convgrad.kernel_cache(place):
            assert os.strerror(errno.ENOTDIR) in info.collect()["kernel cache"]


def test_the_least_recently_used_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only of the cache's own files, of which an interrupted write may have left some."""
    names = [f"{at:064}" for at in range(6)]
    KernelStore(tmp_path).write(names[0], OBJECTS)
    store, size = KernelStore(tmp_path), only(tmp_path).stat().st_size
    monkeypatch.setattr(object_cache, "MAX_BYTES", 5 * size)
    monkeypatch.setattr(object_cache, "PRUNED_BYTES", 3 * size)
    (tmp_path / "mine").write_bytes(bytes(10 * size))
    (tmp_path / f"{disk.TEMPORARY}1").touch()
    for at, name in enumerate(names):
        store.write(name, OBJECTS)
        os.utime(tmp_path / (name + SUFFIX), (at, at))
        if at == 4:
            assert store.read(names[0]) == OBJECTS, "which marks it as used"
            os.utime(tmp_path / f"{disk.TEMPORARY}1", (0, 0))
    assert {path.name for path in tmp_path.iterdir()} == {"mine", *(names[at] + SUFFIX for at in (0, 4, 5))}


def test_it_can_be_off_or_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cache_directory", pytest.fail)
    for off in ("", "off", "OFF"):
        monkeypatch.setenv("CONVGRAD_CACHE_DIR", off)
        assert kernel_directory() is None
        assert info.collect()["kernel cache"].startswith("off")
    assert generated(None) == generated(None) == 1
    monkeypatch.setenv("CONVGRAD_CACHE_DIR", str(tmp_path / "a"))
    assert kernel_directory() == tmp_path / "a"
    with convgrad.kernel_cache(str(tmp_path / "b")):
        assert kernel_directory() == tmp_path / "b"
        with convgrad.kernel_cache(None):
            assert kernel_directory() is None
    assert kernel_directory() == tmp_path / "a"
    wrong: list[Any] = [3, b"kernels", "a\0b", "\ud800"]
    for directory in wrong:
        with pytest.raises(InvalidAttributeError, match="must be a directory"), convgrad.kernel_cache(directory):
            pass


@pytest.mark.parametrize(
    ("platform", "variables", "place"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache"),
        ("linux", {}, "/home/me/.cache"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "/home/me/Library/Caches"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local"),
    ],
)
def test_the_place_of_each_system(
    platform: str, variables: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(host.cache_directory()) == place
    monkeypatch.delenv("CONVGRAD_CACHE_DIR")
    assert str(kernel_directory()) == f"{place}/convgrad"


def test_keys_tell_apart_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another instruction set, compiler, generator, specification or version of the sources is another kernel."""
    wide, narrow = list(ISAS.values())[:2]
    first = (wide, "LLVM 1", added.module_of, (wide, "f32", False))
    others = [(0, narrow), (1, "LLVM 2"), (2, added.add_up), (3, (wide, "f32", True))]
    asked: list[Any] = [first, *((*first[:at], other, *first[at + 1 :]) for at, other in others)]
    keys = [object_cache.key(*each) for each in asked]
    monkeypatch.setattr(object_cache, "_sources", lambda: "another version")
    keys.append(object_cache.key(*first))
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_specifications_are_described_whole() -> None:
    """Two that differ have two texts, without anything that is another in the next process."""
    lines = lines_of(FILE.read_text())[::3]
    problems = [problem for line in lines for problem in problems_of(line)]
    specs = {engines.plan_of(problem, Machine(ISA), 2).spec for problem in problems}
    texts = {repr(spec) for spec in specs}
    assert len(texts) == len(specs) > 50
    assert not any(" at 0x" in text for text in texts)


def of_the_tests(isa: Isa, fmt: str, accumulate: bool) -> str:
    return added.module_of(isa, fmt, accumulate)


@pytest.mark.parametrize("own", [True, False])
def test_what_a_key_does_not_describe_is_not_kept(own: bool, tmp_path: Path) -> None:
    """Local functions may hold anything, as addresses of this process; others' sources are in no digest."""

    def local(isa: Isa, fmt: str, accumulate: bool) -> str:
        return added.module_of(isa, fmt, accumulate)

    local.__module__ = added.__name__
    made = local if own else of_the_tests
    assert object_cache.key(ISA, "LLVM", made, ()) is None
    assert object_cache.key(ISA, "LLVM", added.module_of, (made,)) is None
    with convgrad.kernel_cache(tmp_path):
        jit.functions(ISA, made, ISA, "f32", False, add=added.PROTOTYPE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keeps_time", [False, True])  # as installers that link files from a cache of packages
def test_sources_changed_since_they_were_loaded_keep_nothing(
    keeps_time: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that runs the sources of before an update would keep kernels under the name of those after it."""
    monkeypatch.setattr(object_cache, "_sources", object_cache._sources.__wrapped__)
    assert object_cache._sources()
    source = tmp_path / "words.py"
    source.touch()
    if keeps_time:
        os.utime(source, (1, 1))
    monkeypatch.setattr(object_cache, "package", SimpleNamespace(__file__=str(source)))
    assert object_cache._sources() == ""
    assert object_cache.key(ISA, "LLVM", added.module_of, ()) is None


def test_sources_are_loaded_at_the_import_of_the_package() -> None:
    """The compiler is loaded at the first call, and the specification may have changed since its import."""
    program = """
import time
import convgrad
time.sleep(0.01)
before = time.time()
from convgrad.engines.llvm import object_cache
assert object_cache.BEGUN_S < before
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG_S)

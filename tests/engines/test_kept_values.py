"""Speeds and times in files of the kernel cache that have the right digest and a wrong content: they are not used."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import convgrad
from convgrad.engines.llvm import isas, object_cache, speeds, tune
from convgrad.plan.machine import SPEEDS, Machine
from convgrad.plan.passes import dense_strides
from tests.engines.test_tune import LINE
from tests.support.engine_helpers import made

pytestmark = pytest.mark.skipif(not isas.host_isas(), reason="there are no kernels")
TEXTS = [b"", b"{", b"null", b"3", b'"text"', b"[]", b"{}", b"\xff", b"[" * 100_000, b"9" * 5000, b'{"a": {"b": []}}']
VALUES: list[Any] = [
    None, True, "1.0", [1.0], {}, 0.0, -1.0, 1e300, 1e-300, 10**400, float("nan"), float("inf"), float("-inf"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tune, "ROUNDS_S", 0.0)
    monkeypatch.setattr(tune, "SAMPLE_S", 1e-4)
    tune.fastest.cache_clear()
    with convgrad.kernel_cache(tmp_path):
        yield tmp_path
    tune.fastest.cache_clear()


def put(directory: Path, name: str, text: bytes) -> None:
    """Write a text under the name of a value, with its digest."""
    object_cache.store(directory).write(name, {object_cache._VALUE: text})


def legal() -> dict[str, float]:
    machine = Machine(isas.host_isas()[0])
    return {name: 2 * getattr(machine, name) for name in SPEEDS}


def test_legal_speeds_are_used() -> None:
    isa = isas.host_isas()[0]
    assert speeds.keep(isa, legal()) == ""
    assert speeds.kept(isa) == legal()
    assert speeds.speeds_of(isa) == (legal(), speeds.CALIBRATED)


WRONG = [
    *TEXTS,
    *(json.dumps({"first": 1.0} | dict.fromkeys(SPEEDS, value)).encode() for value in VALUES),
    json.dumps({"isa": "avx2"}).encode(),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_speeds(number: int, directory: Path) -> None:
    isa = isas.host_isas()[0]
    name = speeds._name(isa)
    assert name is not None
    put(directory, name, WRONG[number])
    assert speeds.kept(isa) is None
    assert isas.machine.__wrapped__(isa).isa is isa


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("field", [SPEEDS[0], SPEEDS[-1]])
def test_one_wrong_speed(value: Any, field: str, directory: Path) -> None:
    isa = isas.host_isas()[0]
    name = speeds._name(isa)
    assert name is not None
    put(directory, name, json.dumps(legal() | {field: value}).encode())
    assert speeds.kept(isa) is None


@pytest.mark.parametrize("extra", ["isa", "l1_bytes", "pair_adds", "of_nobody"])
def test_speeds_with_other_keys(extra: str, directory: Path) -> None:
    """They would replace other facts of the machine."""
    isa = isas.host_isas()[0]
    name = speeds._name(isa)
    assert name is not None
    put(directory, name, json.dumps(legal() | {extra: 1.0}).encode())
    assert speeds.kept(isa) is None


def times_of(count: int) -> list[bytes]:
    """Return contents that are not ``count`` times."""
    each = [json.dumps([value] * count).encode() for value in VALUES if value not in (1e300, 1e-300)]
    return [*TEXTS, *each, json.dumps([1.0] * (count + 1)).encode(), json.dumps([1.0] * (count - 1)).encode()]


def test_wrong_times_are_measured_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = made(LINE)
    facts = problem, dense_strides(problem), isas.machine(isas.host_isas()[0]), 1
    times: list[float] = []
    calls: list[int] = []
    measure = tune.measured

    @functools.wraps(measure)
    def measured(*given: Any) -> list[float]:
        calls.append(0)
        times[:] = times or measure(*given)
        return times

    monkeypatch.setattr(tune, "measured", measured)
    right = tune.fastest(*facts)
    store = object_cache.store(directory)
    (name,) = (path.stem for path in directory.iterdir() if object_cache._VALUE in (store.read(path.stem) or {}))
    for number, text in enumerate(times_of(len(times)), 2):
        put(directory, name, text)
        tune.fastest.cache_clear()
        assert tune.fastest(*facts) == right
        assert len(calls) == number, text[:80]
    tune.fastest.cache_clear()
    assert tune.fastest(*facts) == right
    assert len(calls) == number, "what was measured again was kept"

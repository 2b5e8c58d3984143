"""Checkpoints whose hash is right and whose head is not: whatever it says, a FileError says what is wrong."""

from __future__ import annotations

import copy
import hashlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convgrad import ConvgradError, FileError, scale
from convgrad.scale import durable
from convgrad.scale.checkpoint import LINE
from tests.support.engine_helpers import HOST
from tests.support.tiers import tiers

if not HOST:
    pytest.skip("sums in pieces need kernels", allow_module_level=True)

SRC = np.arange(3 * 20 * 20 * 2, dtype=np.float32).reshape(3, 20, 20, 2) % 7
ROWS = SRC.reshape(1, 60, 20, 2)
OTHER = {"strides": 1, "dilations": 1}


def sums(path: Path, **options: Any) -> Any:
    """Leave sums of rows, and of images before."""
    src = np.concatenate([np.tile(ROWS, (1, 6, 1, 1))] * 2)
    layer = {"weights_shape": (1, 1, 2, 2), **OTHER}
    return scale.run("ConvolutionBackwardWeights", src, src, checkpoint=path, memory="100kB", **layer, **options)


def written(path: Path, **options: Any) -> Any:
    out = np.lib.format.open_memmap(path.with_suffix(".npy"), "w+" if "progress" in options else "r+", "<f4", SRC.shape)
    bias = np.ones(2, np.float32)
    return scale.run("BiasAdd", SRC, bias, out=out, checkpoint=path, memory="8kB", **options)


CALLS: dict[str, Callable[..., Any]] = {"sums": sums, "written": written}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any, list[Any]]]:
    """Return of each call the path of its checkpoint, the head and the arrays."""
    found = {}
    for name, call in CALLS.items():
        path = tmp_path_factory.mktemp(name) / "kept"

        def left(now: scale.Progress) -> None:
            if now.share >= 0.6:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            call(path, progress=left)
        found[name] = (path, *durable.read(path, LINE))
    head = found["sums"][1]
    assert head["images"] == 1
    assert head["rows"] > 0
    assert found["written"][1]["images"] == 2
    assert found["written"][1]["out"]
    return found


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the keys to each value within a value of JSON."""
    yield ()
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from ((key, *rest) for rest in places(one))


def changed(value: Any, place: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """Return a copy in which what holds a place is changed there."""
    made = copy.deepcopy({"": value})
    holder: Any = made
    path = ("", *place)
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return made.get("")


NUMBERS = st.integers(-3, 70) | st.sampled_from([2**31, 2**32, 2**63, 2**70, 10**400, -(10**30)])
LEAVES = st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    LEAVES, lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=5), each, max_size=3)
)


@pytest.mark.parametrize("name", CALLS)
@tiers("examples", [8], long=[500])
def test_a_forged_head_is_a_file_error(examples: int, name: str, kept: Any) -> None:
    """Or it says what a call may save: then the call goes on from there, and ends."""

    @settings(deadline=None, max_examples=examples)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        forge(name, kept, data)

    check()


def forge(name: str, kept: Any, data: st.DataObject) -> None:
    path, head, arrays = kept[name]
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(list(places(head))))
        value = data.draw(JSON)
        how = data.draw(st.sampled_from(["set", "remove", "add"]))

        def change(holder: Any, key: Any, how: str = how, value: Any = value) -> None:
            if how == "set" or key == "":
                holder[key] = value
            elif how == "remove":
                del holder[key]
            elif isinstance(holder, list):
                holder.insert(key, value)
            else:
                holder[f"{key}+"] = value

        head = changed(head, place, change)
    some = arrays[: data.draw(st.integers(0, len(arrays)))] if data.draw(st.booleans()) else arrays
    durable.write(path, LINE, head, some)
    ended(name, path)


def ended(name: str, path: Path) -> None:
    """Go on with a call: it ends, or says that the file is wrong."""
    try:
        CALLS[name](path)
    except FileError as error:
        assert str(path) in str(error)  # noqa: PT017 - any other error fails
        assert len(str(error)) < 1000  # noqa: PT017


TEXTS = [
    b"",
    b"{",
    b"nothing",
    b"\xff\xfe",
    b'"' + b"\xed\xa0\x80" + b'"',
    b"[" * 100_000,
    b"1" * 5000,
    b"NaN",
    b"[]",
    b"{}",
    b"null",
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:6]))
def test_a_head_that_is_no_json_is_a_file_error(text: bytes, kept: Any) -> None:
    path, _, _ = kept["written"]
    body = LINE + struct.pack("<QQ", len(text), 0) + text
    path.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(FileError, match=r"is not JSON|has values that no call saves"):
        written(path)


WRONG = {
    "no images": ({"images": None}, "images must be an integer of at least 0; got None"),
    "a bool": ({"images": True}, "images must be an integer of at least 0; got True"),
    "too many": ({"images": 4, "rows": 0}, "4 images and 0 rows of the next are not a part of 3 images of 20 rows"),
    "rows beyond": ({"rows": 20}, "2 images and 20 rows of the next are not a part"),
    "sums": ({"sums": [1, 0]}, r"sums must be \[0, 0\] at this place; got \[1, 0\]"),
    "parts": ({"out": []}, "parts of out must follow one another up to the finished place"),
    "a part": ({"out": [[2, 0]]}, r"a part of out must have images, rows, crc; got \[2, 0\]"),
    "identity": ({"identity": [1]}, "identity must be an object of strings"),
    "more": (
        {"more": 1},
        "it must have identity, images, rows, sums, out; got identity, images, rows, sums, out, more",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_message_says_what_is_wrong(name: str, kept: Any) -> None:
    path, head, arrays = kept["written"]
    forged, message = WRONG[name]
    durable.write(path, LINE, head | forged, arrays)
    with pytest.raises(FileError, match=rf"has values that no call saves: .*{message}.*; remove the file"):
        written(path)
    assert issubclass(FileError, ConvgradError)

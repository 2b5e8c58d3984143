"""A checkpoint: what is saved comes back to the bit, damage and other calls are refused, an exception leaves one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convgrad import FileError, join
from convgrad.functional.partials import as_partials, partials_of
from convgrad.functional.rows import rows_of, subproblem_of_rows
from convgrad.notation import problem
from convgrad.scale import checkpoint, finished
from convgrad.scale.checkpoint import Checkpoint, State
from convgrad.scale.cut import remaining
from convgrad.scale.identity import identity_of
from convgrad.spec.problem import of_images
from convgrad.spec.subproblems import positions, subproblem_of, whole
from tests.support.helpers import assert_same_bits

Array = np.ndarray

SUM = problem("BWD_W f32 NXC mb3ic3ih9iw128oc4oh9ow128kh3ph1kw1")
WRITTEN = problem("BWD_D f32 NXC mb5ic3ih9iw4oc4oh9ow4kh3ph1kw1")


def operands() -> list[Array]:
    rng = np.random.default_rng(2)
    return [rng.standard_normal((3, 9, 128, channels)).astype(np.float32) for channels in (3, 4)]


def rows_from(begin: int, end: int, image: int, given: list[Array]) -> Any:
    slab = subproblem_of_rows(SUM, image, range(begin, end))
    return rows_of(slab, SUM, [a[region] for a, region in zip(given, slab.reads, strict=True)])


def images_of(begin: int, end: int, given: list[Array]) -> Any:
    some = [np.moveaxis(a[begin:end], -1, 1) for a in given]
    return partials_of(of_images(SUM, end - begin), some, begin, 1)


def a_state(given: list[Array]) -> State:
    return State(2, 4, images_of(0, 2, given).sums, rows_from(0, 4, 2, given).sums)


def checkpoint_at(path: Path, given: list[Array]) -> Checkpoint:
    return Checkpoint(path, SUM, identity_of(SUM, given))


def test_what_was_saved_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    given = operands()
    kept = checkpoint_at(tmp_path / "sums", given)
    assert kept.load() is None
    kept.save(a_state(given))
    found = checkpoint_at(tmp_path / "sums", given).load()
    assert found is not None
    assert str(found) == "2 images and 4 rows of the next"
    assert [array.base is None or array.base.nbytes == array.nbytes for array in found.sums] == [True]
    last = replace(rows_from(0, 4, 2, given), sums=found.started) + rows_from(4, 9, 2, given)
    expected = join([images_of(0, 3, given)])
    assert_same_bits(join([as_partials(SUM, 0, 2, found.sums) + last.partials()]), expected, "gone on")
    kept.save(State(3, sums=images_of(0, 3, given).sums))
    again = kept.load()
    assert again is not None
    assert not again.started
    assert_same_bits(join([as_partials(SUM, 0, 3, again.sums)]), expected, "images alone")
    assert [path.name for path in tmp_path.iterdir()] == ["sums"], "no file beside it is left"
    kept.remove()
    assert kept.load() is None


def test_damage_anywhere_and_any_truncation_is_a_file_error(tmp_path: Path) -> None:
    given, path = operands(), tmp_path / "sums"
    kept = checkpoint_at(path, given)
    kept.save(a_state(given))
    whole_file = path.read_bytes()
    for at in {*range(0, len(whole_file), 97), len(whole_file) - 1}:
        damaged = bytearray(whole_file)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"is damaged|must begin with"):
            kept.load()
        path.write_bytes(whole_file[:at])
        with pytest.raises(FileError, match=r"is damaged|must begin with"):
            kept.load()
    path.write_bytes(whole_file + b"\0")
    with pytest.raises(FileError, match="is damaged"):
        kept.load()


@pytest.mark.long
def test_each_byte_and_each_length_tells_of_damage(tmp_path: Path) -> None:
    given, path = operands(), tmp_path / "sums"
    kept = checkpoint_at(path, given)
    kept.save(State(1, sums=images_of(0, 1, given).sums))
    file = path.read_bytes()
    for at in range(len(file)):
        flipped = [file[:at] + bytes([file[at] ^ bits]) + file[at + 1 :] for bits in (0x01, 0x80, 0xFF)]
        shifted = file[:at] + file[at + 1 :], file[:at] + b"\0" + file[at:]
        for damaged in (*flipped, *shifted, file[:at]):
            path.write_bytes(damaged)
            if damaged == file:
                continue
            with pytest.raises(FileError, match=r"is damaged|must begin with"):
                kept.load()
    path.write_bytes(file)
    assert kept.load() is not None


def mapped(path: Path, array: Array) -> Array:
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def test_another_call_is_refused_with_what_differs(tmp_path: Path) -> None:
    given = operands()
    twice = mapped(tmp_path / "0.npy", np.concatenate([given[0], given[0]]))
    maps = [twice[:3], mapped(tmp_path / "1.npy", given[1])]
    path = tmp_path / "sums"
    checkpoint_at(path, maps).save(a_state(given))
    assert checkpoint_at(path, maps).load() is not None
    other = replace(SUM, geometry=replace(SUM.geometry, batch=4))
    for now, words, differs in (
        (other, identity_of(other, maps), "batch was 3 and is 4"),
        (SUM, identity_of(SUM, [np.array(maps[0]), maps[1]]), "src was .*0.npy and is in memory"),
        (
            SUM,
            identity_of(SUM, [twice[3:], maps[1]]),
            "the part of src's file that is mapped was from byte 128 by .* and is from byte 41600 by ",
        ),
        (
            SUM,
            identity_of(SUM, [maps[0], maps[1][::-1]]),
            "the part of diff_dst's file that is mapped was from byte 128 by .* and is from byte ",
        ),
    ):
        with pytest.raises(FileError, match=f"the checkpoint is of another call: {differs}.*; remove the file"):
            Checkpoint(path, now, words).load()
    one, two = replace(SUM, geometry=replace(SUM.geometry, batch=1)), tmp_path / "two"
    Checkpoint(two, one, identity_of(one, [a[:1] for a in maps])).save(State())
    for place in (np.s_[1:2], np.s_[2:]):  # of the same shape and strides, and of a map that says offset 128, too
        others = identity_of(one, [maps[0][:1], maps[1].view(np.ndarray)[place]])
        with pytest.raises(FileError, match=r"diff_dst.* from byte 128 .* and is from byte \d{4,} "):
            Checkpoint(two, one, others).load()
        others = identity_of(one, [maps[0][:1].view(np.ndarray), maps[1][place].view(np.ndarray)])
        with pytest.raises(FileError, match=r"diff_dst.* from byte 128 .* and is from byte \d{4,} "):
            Checkpoint(two, one, others).load()
    mapped(tmp_path / "1.npy", given[1])
    with pytest.raises(
        FileError, match=r"the time of change of diff_dst.s file was 2\d{3}-.* UTC and is 2\d{3}-.* UTC;"
    ):
        checkpoint_at(path, [maps[0], np.load(tmp_path / "1.npy", mmap_mode="r")]).load()


def test_an_out_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    out = np.arange(5 * 9 * 4 * 3, dtype=np.float32).reshape(5, 9, 4, 3)
    kept = Checkpoint(tmp_path / "place", WRITTEN, {}, out)
    kept.save(State(2, 3))
    assert kept.load() == State(2, 3)
    for anew in (np.zeros_like(out), np.where(np.arange(5).reshape(5, 1, 1, 1) < 2, out, 0)):
        with pytest.raises(FileError, match="says that 2 images and 3 rows of the next are finished in out"):
            Checkpoint(tmp_path / "place", WRITTEN, {}, anew).load()
    out[3:] = 0  # not finished, so not looked at
    assert kept.load() == State(2, 3)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "line", ["BWD_D f32 NXC mb5ic3ih9iw4oc4oh9ow4kh3ph1kw1", "FWD_D bf16 NCX mb5ic2ih9iw4oc3oh9ow4kh1kw1"]
)
@pytest.mark.parametrize("step_bytes", [finished.STEP_BYTES, 100])
def test_every_number_that_is_finished_is_looked_at(
    line: str, step_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any part of what was saved in several, some within images."""
    monkeypatch.setattr(finished, "STEP_BYTES", step_bytes)
    one = problem(line)
    out = np.arange(1, np.prod(one.output_shape) + 1).reshape(one.output_shape).astype(one.output_format.dtype)
    kept = Checkpoint(tmp_path / "place", one, {}, out)
    for state in (State(0, 2), State(0, 5), State(1, 1), State(1, 1), State(3), State(3, 7)):
        kept.save(state)
    assert [part.end for part in kept.parts] == [(0, 2), (0, 5), (1, 1), (3, 0), (3, 7)]
    again = Checkpoint(tmp_path / "place", one, {}, out)
    assert again.load() == State(3, 7)
    assert again.parts == kept.parts
    rows = np.moveaxis(out, 1, -1) if one.layouts[-1] == "NCX" else out
    for place in np.ndindex(rows.shape):
        before = rows[place]
        rows[place] = 0
        if place[:2] < (3, 7):
            with pytest.raises(FileError, match=r"3 images and 7 rows .* has different contents in images \d to \d;"):
                again.load()
        else:
            assert again.load() == State(3, 7)
        rows[place] = before


def test_what_is_finished_again_is_another_part(tmp_path: Path) -> None:
    """A state that is saved after a later one drops what that had."""
    out = np.ones((5, 9, 4, 3), np.float32)
    kept = Checkpoint(tmp_path / "place", WRITTEN, {}, out)
    for state in (State(2), State(4), State(2, 3)):
        kept.save(state)
    assert [part.end for part in kept.parts] == [(2, 0), (2, 3)]
    out[3:] = 0
    assert Checkpoint(tmp_path / "place", WRITTEN, {}, out).load() == State(2, 3)


def test_a_place_where_no_file_can_be_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such directory"):
        Checkpoint(tmp_path / "none" / "sums", SUM, {}).load()


def left(kept: Checkpoint, *states: State, then: Callable[[], None] = lambda: None) -> None:
    """Leave a call after some states."""
    with kept.kept() as keep:
        for state in states:
            keep(state)
        then()
        raise KeyboardInterrupt


def test_an_exception_leaves_a_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path / "place", WRITTEN, {})
    with pytest.raises(KeyboardInterrupt) as caught:
        left(kept, State(1), State(2))
    assert caught.value.__notes__ == [f"{tmp_path / 'place'} has the finished part: the same call resumes from it"]
    assert kept.load() == State(2)
    with kept.kept() as keep:
        keep(State(3))
        assert kept.load() == State(2), "not saved before its time"
    assert not (tmp_path / "place").exists()
    with pytest.raises(KeyboardInterrupt) as caught:
        left(kept)
    assert not hasattr(caught.value, "__notes__"), "nothing was finished"
    assert not (tmp_path / "place").exists()


def test_what_is_finished_is_saved_every_so_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    kept = Checkpoint(tmp_path / "place", WRITTEN, {})
    seen = []
    with kept.kept() as keep:
        for images in range(1, 6):
            now[0] += checkpoint.EVERY_S / 2
            keep(State(images))
            seen.append(kept.load())
    assert seen == [None, State(2), State(2), State(4), State(4)]


def test_what_was_saved_is_held_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that are in others by now would take memory that no plan counts."""
    monkeypatch.setattr(checkpoint, "EVERY_S", 0.0)
    with Checkpoint(tmp_path / "sums", SUM, {}).kept() as keep:
        state = State(1, sums=(np.zeros(SUM.output_shape, np.float32),))
        seen = weakref.ref(state.sums[0])
        keep(state)
        del state
        assert seen() is None


def test_a_checkpoint_that_cannot_be_saved_hides_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt) as caught:
        left(Checkpoint(folder / "place", WRITTEN, {}), State(1), then=folder.rmdir)
    assert "place could not store the finished part: " in caught.value.__notes__[0]


def test_what_remains_of_any_cut_is_what_is_not_finished() -> None:
    """Of slabs of images, of rows and of boxes, once each, and in order."""
    height, width = positions(WRITTEN)
    band = [(range(a, min(a + 4, height)), *whole(WRITTEN)[1:]) for a in range(0, height, 4)]
    inner = [(rows[0], range(b, b + 2)) for rows in band for b in range(0, width, 2)]
    images = [range(n, n + 1) for n in range(5)]
    cuts = {
        "images": [subproblem_of(WRITTEN, some, whole(WRITTEN)) for some in (range(2), range(2, 5))],
        "rows": [subproblem_of(WRITTEN, n, box) for n in images for box in band],
        "boxes": [subproblem_of(WRITTEN, n, box) for n in images for box in inner],
    }
    for name, slabs in cuts.items():
        for images_done in range(6):
            for rows in range(height if images_done < 5 else 1):
                count = np.zeros((5, height, width), int)
                for slab in remaining(WRITTEN, slabs, images_done, rows):
                    assert slab == subproblem_of(WRITTEN, slab.images, slab.ranges)
                    ranges = (slab.images, *slab.ranges)
                    count[tuple(slice(each.start, each.stop) for each in ranges)] += 1
                done = np.arange(5 * height).reshape(5, height, 1) < images_done * height + rows
                assert np.array_equal(count, np.broadcast_to(~done, count.shape)), (name, images_done, rows)
    assert reduce(add, [len(s.images) for s in remaining(WRITTEN, cuts["images"], 0, 0)]) == 5

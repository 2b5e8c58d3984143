"""Where in a file an array lies: of any view of a map, and what rests on it, that files are not mixed up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from convgrad import FileError, InvalidShapeError, scale
from convgrad.scale.mapped import part_of

NUMBERS = np.arange(4 * 5 * 6, dtype="<f4").reshape(4, 5, 6)
VIEWS = {
    "all": lambda a: a,
    "later images": lambda a: a[2:],
    "of views": lambda a: a[1:][1:, 2:][:, :, ::2],
    "backwards": lambda a: a[::-1, 1:, ::-2],
    "no memmap": lambda a: a.view(np.ndarray)[1:].transpose(2, 0, 1),
    "broadcast": lambda a: np.broadcast_to(a[1], (3, 5, 6)),
    "none": lambda a: a[4:],
}


@pytest.mark.parametrize("offset", [0, 5000])
@pytest.mark.parametrize("view", VIEWS)
def test_the_bytes_of_a_view_are_those_at_its_numbers(view: str, offset: int, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(b"\0" * offset + NUMBERS.tobytes())
    array = VIEWS[view](np.memmap(path, "<f4", "r", offset, NUMBERS.shape))
    part = part_of(array)
    assert part is not None
    assert part.file == str(path.resolve())
    if array.size:
        at = offset + 4 * array.astype(int)  # each number is its own place
        assert part.first == at.flat[0]


def test_what_lies_in_no_file_has_no_part() -> None:
    assert part_of(NUMBERS) is None
    assert part_of(NUMBERS[1:]) is None
    assert part_of(None) is None


def mapped(path: Path, mode: str = "r") -> np.ndarray:
    return np.load(path, mmap_mode=mode)  # type: ignore[call-overload, no-any-return]


def test_a_checkpoint_of_other_images_of_the_same_file_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "dst.npy", np.ones((40, 16, 16, 2), np.float32))
    dst = mapped(tmp_path / "dst.npy")

    def left(now: scale.Progress) -> None:
        raise KeyboardInterrupt

    options = {"memory": "90kB", "checkpoint": tmp_path / "kept"}
    with pytest.raises(KeyboardInterrupt):
        scale.run("BiasAddBackward", dst[:20], progress=left, **options)
    with pytest.raises(FileError, match=r"the part of diff_dst's file that is mapped was from byte 128 .* 41088 by"):
        scale.run("BiasAddBackward", dst[20:], **options)


def test_an_out_in_the_bytes_of_an_operand_is_refused(tmp_path: Path) -> None:
    """Of two maps of a file, that share no memory; other bytes of the file are no operand."""
    np.save(tmp_path / "src.npy", np.ones((4, 5, 5, 2), np.float32))
    (tmp_path / "link.npy").hardlink_to(tmp_path / "src.npy")
    src, out, bias = mapped(tmp_path / "src.npy"), mapped(tmp_path / "link.npy", "r+"), np.ones(2, np.float32)
    with pytest.raises(InvalidShapeError, match=r"got memory shared with src \[D4\]$"):
        scale.run("BiasAdd", src, bias, out=out)
    scale.run("BiasAdd", src[:2], bias, out=out[2:])
    assert (src[:2].max(), src[2:].min()) == (1, 2)

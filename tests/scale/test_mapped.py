"""Calls in pieces on maps of files: files are not mixed up, and no operand is written over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from convgrad import FileError, InvalidShapeError, scale


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

"""Progress of a call in pieces: what its figures say, and who is told."""

from __future__ import annotations

import io

import pytest

from convgrad import InvalidAttributeError
from convgrad.scale.progress import Progress, reporting

HALF = Progress(done=6, pieces=10, images=60, read_bytes=800_000_000, elapsed_s=8.0, waiting_s=1.0, resumed=2)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_time_left_is_of_the_pieces_of_this_call() -> None:
    assert (HALF.share, HALF.bytes_per_s, HALF.left_s) == (0.6, 1e8, 8.0)
    assert str(HALF) == "6 of 10 pieces, 100 MB/s, 8 s left"
    first = Progress(done=2, pieces=10, images=20, read_bytes=0, elapsed_s=0.0, waiting_s=0.0, resumed=2)
    assert str(first) == "2 of 10 pieces, 0 MB/s"


def test_true_is_a_line_on_a_terminal_and_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, expected in ((Terminal(), f"\r\x1b[KConvolution: {HALF}\r\x1b[K"), (io.StringIO(), ""), (None, None)):
        monkeypatch.setattr("sys.stderr", stream)
        with reporting("Convolution", True) as tell:
            tell(HALF)
        assert (stream and stream.getvalue()) == expected or stream is None


def test_a_callable_is_told_the_value_and_nobody_where_there_is_none() -> None:
    seen: list[Progress] = []
    with reporting("Convolution", seen.append) as tell:
        tell(HALF)
    assert seen == [HALF]
    with reporting("Convolution", None) as tell:
        tell(HALF)
    with (
        pytest.raises(InvalidAttributeError, match=r"^Convolution: progress must be .*; got 3 \[K2\]$"),
        reporting(
            "Convolution",
            3,  # type: ignore[arg-type]
        ),
    ):
        pass

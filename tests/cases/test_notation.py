"""benchdnn's notation: read, deduced, written back, refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convgrad import NotationError, cases, infer_shapes
from convgrad.cli import main
from convgrad.descriptor import AxisSize, Descriptor, read_descriptor, write_descriptor
from convgrad.errors import FileError
from convgrad.formats import FORMATS
from convgrad.notation import DIRECTIONS, Line, calls, problem, read, write
from convgrad.spec.geometry import effective_kernel

READ = {
    "mb8ic64ih56oc64oh56kh3ph1": Descriptor(8, 1, 64, 64, (AxisSize(56, 56, 3, 1, 1, 1, 1),) * 2),
    "ic16iw5oc8kw3": Descriptor(2, 1, 16, 8, (AxisSize(5, 3, 3, 1, 0, 0, 1),)),
    "g2mb1ic4id7oc6kd3sd2pd1dd1": Descriptor(1, 2, 4, 6, (AxisSize(7, 3, 3, 2, 1, 1, 2),) * 3),
    'mb1_ic3_iw10oc2_kw4sw3pw0n"a layer:1"': Descriptor(1, 1, 3, 2, (AxisSize(10, 3, 4, 3, 0, 0, 1),), "a layer:1"),
    "mb1ic1oc1ih10iw5oh10ow3kh3kw3": Descriptor(
        1, 1, 1, 1, (AxisSize(10, 10, 3, 1, 1, 1, 1), AxisSize(5, 3, 3, 1, 0, 0, 1))
    ),
    # deduced right pads: none, negative (trims what no tap reads), one, many
    "g1ic1id2ih1iw1oc1od2oh1ow1kd3kh1kw1pd2": Descriptor(
        2, 1, 1, 1, (AxisSize(2, 2, 3, 1, 2, 0, 1), AxisSize(1, 1, 1, 1, 0, 0, 1), AxisSize(1, 1, 1, 1, 0, 0, 1))
    ),
    "g1ic16ih7iw1oc16oh1ow1kh11kw1sh2ph5": Descriptor(
        2, 1, 16, 16, (AxisSize(7, 1, 11, 2, 5, 0, 1), AxisSize(1, 1, 1, 1, 0, 0, 1))
    ),
    "g1_ic16ih4iw8_oc16oh3ow8_kh1kw1sh2": Descriptor(
        2, 1, 16, 16, (AxisSize(4, 3, 1, 2, 0, 1, 1), AxisSize(8, 8, 1, 1, 0, 0, 1))
    ),
    "g1_oc16oh56ow56_ic16ih28_kh1sh2ph0": Descriptor(2, 1, 16, 16, (AxisSize(28, 56, 1, 2, 0, 83, 1),) * 2),
}  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_read(text: str) -> None:
    assert read_descriptor(text) == READ[text]


# A descriptor, and the same one with keys of an axis that say nothing there: benchdnn ignores all of them.
SILENT = [
    ("g1mb1ic1iw25oc2kw5", "pd0"),
    ("g1mb1ic1iw25oc2kw5", "pd0ph0"),
    ("mb1ic4ih8oc4kh3", "pd0"),
    ("mb1ic4ih8oc4kh3", "dd0"),
    ("mb1ic4ih8oc4kh3", "sd1"),
    ("mb1ic4ih8oc4kh3", "id0od0kd0sd1dd0pd0"),
    ("mb1ic4ih8oc4kh3ph1", "pw0"),  # w repeats h, its pad too
    ("mb1ic4ih9oc4kh3sh2dh1", "sw1dw0"),
    ("mb1ic4id8oc4kd3pd1", "ph0"),
    ("mb1ic4id8oc4kd3pd1", "pw0dh0"),
]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("text", "silent"), SILENT)
def test_an_axis_of_nothing_but_defaults_is_not_given(text: str, silent: str, transposed: bool) -> None:
    expected = read_descriptor(text, transposed)
    assert read_descriptor(text + silent, transposed) == read_descriptor(silent + text, transposed) == expected


def test_deconv_describes_its_own_src() -> None:
    d = read_descriptor("mb1ic64ih4oc32oh8kh4sh2", transposed=True)
    assert d.axes == (AxisSize(4, 8, 4, 2, 1, 1, 1),) * 2
    assert read_descriptor("mb1ic64ih4oc32kh4sh2ph1", transposed=True) == d


def test_deconv_with_a_longer_output_needs_output_padding() -> None:
    (call,) = calls(read("deconv FWD_D f32 NXC mb1ic2iw4oc3ow9kw3sw2pw0"))
    assert call.attributes["output_padding"] is None
    (call,) = calls(read("deconv FWD_D f32 NXC mb1ic2iw4oc3ow10kw3sw2pw0"))
    assert call.attributes["output_padding"] == [1]
    assert infer_shapes(call.operator, *call.shapes, **call.attributes) == (1, 10, 3)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("ic3oc3", "at least one spatial axis"),
        ("ic3ih5oc3kh3xx", "cannot read 'xx'"),
        ("ic3ih5oc3kh3auto_pad1", "cannot express auto_pad"),
        ("ih5oc3kh3", "ic must be given"),
        ("ic3ih5oc3", "kh must be given"),
        ("ic3ih5iw5oc3kh3", "kw must be given"),
        ("ic3ih5oc3kh3kh3", "kh twice"),
        ("ic3ih5oc3kh3sh0", "sh must be given and positive"),
        ("ic3ih5oc3oh1kh3ph0", "oh must be at least 3"),
        ("ic3ih2oc3kh5", "oh follows from the rest"),
        ("ic3id4ih5oc3kd3kh3", "both h and w or neither"),
        ("ic3ih5oc3kh3pd1", "both h and w or neither"),
        ("ic3ih5oc3kh3dd1", "both h and w or neither"),
        ("ic3iw5oc3kw3ph0sh2", "ih must be given"),
        ("ic3oc3ph0dh0sh1", "at least one spatial axis"),
        ("ic3ih5oc3kh", "cannot read 'kh'"),
        ("g0ic3ih5oc3kh3", "g must be given and positive"),
        ("ic3ix5oc3kh3", "cannot read 'ix5oc3kh3'"),
    ],
)
def test_refused(text: str, part: str) -> None:
    with pytest.raises(NotationError, match=part.replace("(", r"\(")):
        read_descriptor(text)


def test_four_axes_cannot_be_written() -> None:
    with pytest.raises(NotationError, match="up to 3 spatial axes"):
        write_descriptor(Descriptor(1, 1, 1, 1, (AxisSize(3, 3, 1, 1, 0, 0, 1),) * 4))


def test_pads_it_would_deduce_otherwise_cannot_be_written() -> None:
    with pytest.raises(NotationError, match="cannot express the pads"):
        write_descriptor(Descriptor(1, 1, 1, 1, (AxisSize(4, 2, 1, 2, 0, 1, 1),)))


def test_nothing_is_no_line() -> None:
    with pytest.raises(NotationError, match="a problem line is"):
        read("")


def test_groups_must_divide() -> None:
    with pytest.raises(NotationError, match="g must divide"):
        problem("BWD_W f32 NXC g2ic3ih5oc4kh3")


@st.composite
def lines(draw: st.DrawFn) -> Line:
    transposed = draw(st.booleans())
    axes = []
    for _ in range(draw(st.integers(1, 3))):
        k, s, d, begin = (
            draw(st.integers(1, 5)),
            draw(st.integers(1, 4)),
            draw(st.integers(1, 3)),
            draw(st.integers(0, 4)),
        )
        e = effective_kernel(k, d)
        large = draw(st.integers(max(1, e - begin), 20))
        end = draw(st.integers(0, 3))
        small = (large + begin + end - e) // s + 1
        end = max(0, (small - 1) * s + e - large - begin)  # the notation keeps only what is read
        size, output = (small, large) if transposed else (large, small)
        axes.append(AxisSize(size, output, k, s, begin, end, d))
    g = draw(st.integers(1, 3))
    channels = (g * draw(st.integers(1, 4)), g * draw(st.integers(1, 4)))
    name = draw(st.sampled_from(["", "a", "b:1*2"]))
    choices = ("XOI", "IOX") if transposed else ("XIO", "OIX")
    return Line(
        transposed,
        draw(st.sampled_from(list(DIRECTIONS))),
        FORMATS[draw(st.sampled_from(list(FORMATS)))],
        draw(st.sampled_from(["NXC", "NCX"])),
        draw(st.sampled_from(choices)),
        Descriptor(draw(st.integers(0, 9)), g, *channels, tuple(axes), name),
    )


@given(lines())
def test_what_is_written_reads_back_equal(line: Line) -> None:
    text = write(line)
    assert read(text) == line
    assert write(read(text)) == text


@given(lines())
def test_every_line_is_a_legal_call_of_the_shape_it_says(line: Line) -> None:
    for call in calls(line):
        shape = infer_shapes(call.operator, *call.shapes, **call.attributes)
        src, dst, weights = calls(_as_weights(line))[0].shapes
        expected = {"FWD": dst, "BWD_D": src, "BWD_W": weights}
        if call.operator == "BiasAddBackward":
            assert shape == (line.descriptor.out_channels,)
        else:
            assert shape == next(v for k, v in expected.items() if line.direction.startswith(k))


def _as_weights(line: Line) -> Line:
    return Line(line.transposed, "BWD_W", line.format, line.data_format, line.weights_format, line.descriptor)


# -- pads that a descriptor leaves to be deduced: accepted as by benchdnn, and named if a position meets them alone ----

NOTE = "ih9 and oh99 leave a pad of 91 at the end of h, which the descriptor does not give"
LINE = "FWD_D f32 NXC mb1ic1ih9oc1oh99kh3ph1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ic1ih9oc1oh99kh3ph1", NOTE),
        ("ic1ih9oc1oh99kh3", "ih9 and oh99 leave a pad of 46 at the end of h"),
        ("ic1ih9iw9oc1oh9ow20kh3kw3ph1pw1", "iw9 and ow20 leave a pad of 12 at the end of w"),
        ("ic1ih9oc1oh11kh3ph1", "a pad of 3 at the end"),
        ("ic1ih9oc1oh10kh3ph1", ""),  # the last position still meets the last of src
        ("ic1ih9oc1oh99kh3ph46", ""),  # written
        ("ic1ih9oc1oh9kh3", ""),
        ("ic1ih224oc1oh112kh3sh2ph0", ""),
    ],
)
def test_notes_of_descriptors(text: str, words: str) -> None:
    found = read_descriptor(text)
    assert (words in found.note) if words else (found.note == "")
    assert found == read_descriptor(write_descriptor(found))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (LINE, f"oh99 must follow from the other keys: {NOTE}; ph1 gives oh9. Correct oh, or give shapes and pads_end"),
        (LINE.removesuffix("ph1"), "oh99 must follow from the other keys: .* a pad of 46 .*; a pad of 0 gives oh7"),
        ("deconv BWD_D f32 NXC mb1ic1ih9oc1oh2kh3ph1", "oh2 must follow from the other keys: .*; ph1 gives oh9"),
        ("BWD_W f32 NXC ic1ih9iw9oc1oh9ow99kh3kw3ph1pw1", "ow99 must follow from the other keys: .*; pw1 gives ow9"),
    ],
)
def test_a_wrong_extent_is_refused(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(NotationError, match=words):
        read(line, strict=True)
    (tmp_path / "list").write_text(line)
    with pytest.raises(FileError, match=f"list:1:1: {words}"):
        list(cases.read(tmp_path / "list"))


def test_lists_of_benchdnn_have_the_note(tmp_path: Path) -> None:
    """benchdnn's own lists have such extents on purpose; in quoted text they are refused."""
    list_ = "--dir=BWD_WB,FWD_D ic1ih9oc1oh99kh3ph1 ic1ih9oc1kh3"
    (tmp_path / "list").write_text(list_)
    assert [case.note for case in cases.read(tmp_path / "list")] == [NOTE] * 3 + [""] * 3
    with pytest.raises(NotationError, match="the problem:1:20: oh99 must follow"):
        list(cases.read(list_))


@pytest.mark.parametrize("command", ["run", "explain", "verify"])
def test_commands_warn_or_refuse(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    assert main([command, "FWD_D f32 NXC mb1ic1ih4oc1kh1sh2ph2"]) == 0
    note = "ih4 and oh4 leave a pad of 1 at the end of h, which the descriptor does not give"
    said = capsys.readouterr().err.splitlines()
    assert said == [f"convgrad: warning: {'the problem:1:1: ' * (command == 'verify')}{note}"]
    assert main([command, LINE]) == 2
    assert "oh99 must follow from the other keys" in capsys.readouterr().err


def test_verify_warns_once_per_descriptor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    (tmp_path / "list").write_text("--dir=BWD_WB ic1ih9oc1oh99kh3ph1\n" * 23)
    assert main(["verify", str(tmp_path / "list"), "--only", "*_bias*"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 21
    assert said[-1] == "convgrad: and 3 more such pads"

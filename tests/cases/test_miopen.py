"""Lines of MIOpenDriver and iree-boo-driver: what each runs, and where a mistake stands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from convgrad import cases
from convgrad.errors import FileError
from convgrad.functional.call import problem_from_shapes
from convgrad.verify.cases import miopen
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.driver_flags import NUMBERS, OTHER, RUNNING, WORDS
from convgrad.verify.cases.lying import DATA, TRANSPOSED, WEIGHTS, lying
from convgrad.verify.cases.place import Place

HERE = Place("cases.txt", 7, 3)
LAYER = "-n 8 -c 16 -H 32 -W 30 -k 24 -y 3 -x 5 -p 1 -q 2 -u 2 -v 1 -l 1 -j 2 -g 4"
SRC, DST, KERNEL = (8, 16, 32, 30), (8, 24, 16, 26), (24, 4, 3, 5)
NHWC = "--in_layout NHWC --out_layout NHWC --fil_layout NHWC"


def read(text: str) -> list[Case]:
    return miopen.read_line(text, HERE)


def told(cases: list[Case]) -> list[tuple[str, tuple[tuple[int, ...], ...]]]:
    return [(case.operator, case.shapes) for case in cases]


FORWARD = ("Convolution", (SRC, KERNEL))
DATA_GRADIENT = ("ConvolutionBackwardData", (DST, KERNEL, SRC))
WEIGHTS_GRADIENT = ("ConvolutionBackwardWeights", (SRC, DST, KERNEL))
BITS = {"1": [0], "2": [1], "4": [2], "3": [0, 1], "5": [0, 2], "6": [1, 2], "7": [0, 1, 2], "0": [0, 1, 2]}


@pytest.mark.parametrize("forw", BITS)
def test_forw_says_which_directions_run(forw: str) -> None:
    every = [FORWARD, DATA_GRADIENT, WEIGHTS_GRADIENT]
    cases = read(f"./bin/MIOpenDriver conv {LAYER} -F {forw}")
    assert told(cases) == [every[at] for at in BITS[forw]]
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert case.attributes["strides"] == [2, 1]
        assert case.attributes["pads_begin"] == case.attributes["pads_end"] == [1, 2]
        assert case.attributes["dilations"] == [1, 2]
        assert case.attributes["groups"] == 4
        problem_from_shapes(case.operator, case.shapes, case.attributes, case.operand_format)


def test_what_is_absent_runs_all_or_the_forward_by_the_driver() -> None:
    assert len(read(f"MIOpenDriver conv {LAYER}")) == 3
    assert told(read(f"iree-boo-driver conv {LAYER}")) == [FORWARD]
    with pytest.raises(FileError, match="must have --forw"):
        read(f"conv {LAYER}")
    assert told(read("MIOpenDriver conv -F 1")) == [("Convolution", ((100, 3, 32, 32), (32, 3, 3, 3)))]


def test_every_name_of_a_flag_means_the_same() -> None:
    short = dict(zip(*[iter(LAYER.split())] * 2, strict=True))
    long = {
        name: value for name, (letter, _) in NUMBERS.items() for flag, value in short.items() if flag == f"-{letter}"
    }
    assert len(long) == len(short)
    wanted = read(f"MIOpenDriver convfp16 {LAYER} -F 4")
    for form in ("--{} {}", "--{}={}"):
        cases = read("MIOpenDriver convfp16 " + " ".join(form.format(*one) for one in long.items()) + " --forw 4")
        assert told(cases) == told(wanted)
        assert [c.attributes for c in cases] == [c.attributes for c in wanted]


def test_short_names_differ() -> None:
    letters = [letter for table in (NUMBERS, WORDS, OTHER) for letter, _ in table.values()] + list(RUNNING.values())
    assert len(set(letters)) == len(letters)


def test_formats_and_what_only_times_and_prints() -> None:
    for command, name in (("conv", "f32"), ("convfp16", "f16"), ("convbfp16", "bf16")):
        [case] = read(
            f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver {command} {LAYER} -F 4 -t 1 -S -1 -i 3"
        )
        assert case.operand_format.name == case.output_format.name == name
    [case] = read(f"iree-boo-driver convbfp16 {LAYER} -F 2 --csv=x.csv --no-verbose --gpu-id 0")
    assert told([case]) == [DATA_GRADIENT]


def test_layouts() -> None:
    [case] = read(f"iree-boo-driver convbfp16 {LAYER} -F 4 {NHWC}")
    assert case.shapes == ((8, 32, 30, 16), (8, 16, 26, 24), KERNEL)
    assert (case.attributes["data_format"], case.attributes["weights_format"]) == ("NXC", "OIX")
    assert case.why == "diff_weights are those of the line, NHWC, transposed by (0, 3, 1, 2)"
    [case] = read(f"MIOpenDriver conv {LAYER} -F 1 --in_layout NHWC --out_layout NCHW --fil_layout CHWN")
    assert case.attributes["data_format"] == "NCX"
    assert "src is that of the line, NHWC, transposed by (0, 3, 1, 2)" in case.why
    assert "weights are those of the line, CHWN, transposed by (3, 0, 1, 2)" in case.why


@pytest.mark.parametrize(("axes", "formats"), [("n1c0", DATA), ("0c1n", DATA), ("o10i", WEIGHTS), ("i0o1", TRANSPOSED)])
def test_the_transposition_told_makes_the_format(axes: str, formats: tuple[str, ...]) -> None:
    extents = {"n": 2, "c": 3, "o": 4, "i": 5, "0": 6, "1": 7}
    found = lying({"src": axes}, formats)
    order = eval(found.notes[0].partition("transposed by ")[2])
    array = np.zeros([extents[letter] for letter in axes]).transpose(order)
    canonical = ("nc01" if formats == DATA else "oi01").translate({})
    assert array.shape == found.shape([extents[letter] for letter in canonical])


def test_volumes_and_rows() -> None:
    line = "convbfp16 -n 8 -c 16 --in_d 16 -H 8 -W 9 -k 6 --fil_d 3 -y 1 -x 1 --pad_d 1 --conv_stride_d 2 -F 4"
    [case] = read(f"MIOpenDriver {line} --spatial_dim 3 --in_layout NDHWC --out_layout NDHWC")
    assert case.shapes == ((8, 16, 8, 9, 16), (8, 8, 8, 9, 6), (6, 16, 3, 1, 1))
    [case] = read(
        "iree-boo-driver conv -n 2 -c 3 -H 9 -k 4 -y 3 -p 1 -F 1 --in_layout NHC --fil_layout NCH --out_layout NHC"
    )
    assert case.shapes == ((2, 9, 3), (4, 3, 3))


def test_transposed() -> None:
    line = "MIOpenDriver conv -m trans -n 2 -c 6 -H 5 -W 5 -k 8 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -Y 1 -g 2"
    src, dst, kernel = (2, 6, 5, 5), (2, 8, 10, 9), (6, 4, 3, 3)
    assert told(read(line)) == [
        ("ConvTranspose", (src, kernel)),
        ("ConvTransposeBackwardData", (dst, kernel)),
        ("ConvTransposeBackwardWeights", (src, dst, kernel)),
    ]
    assert {case.attributes["weights_format"] for case in read(line)} == {"IOX"}
    with pytest.raises(FileError, match="iree-boo-driver's mode trans"):
        read(line.replace("MIOpenDriver", "iree-boo-driver"))


# Half of max(K - s, 0), or of K less what of a stride is left over, rounded down; only where nothing is dilated.
PAD_MODES = {
    ("same", 32, 4, 1, 1): 1,
    ("same", 32, 5, 2, 1): 1,
    ("same", 31, 5, 2, 1): 2,
    ("same", 32, 5, 2, 2): 3,
    ("same", 32, 1, 2, 2): 0,
    ("valid", 32, 5, 2, 1): 0,
    ("default", 32, 5, 2, 1): 3,
}


@pytest.mark.parametrize("key", PAD_MODES)
def test_pad_mode_is_the_drivers_own(key: tuple[str, int, int, int, int]) -> None:
    mode, size, kernel, stride, dilation = key
    line = f"-n 1 -c 1 -H {size} -W {size} -k 1 -y {kernel} -x {kernel} -p 3 -q 3 -u {stride} -v {stride}"
    [case] = read(f"MIOpenDriver conv {line} -l {dilation} -j {dilation} -z {mode} -F 1")
    assert case.attributes["pads_begin"] == case.attributes["pads_end"] == [PAD_MODES[key]] * 2


def test_a_bias_is_the_forwards() -> None:
    cases = read(f"MIOpenDriver conv {LAYER} -b 1")
    assert told(cases) == [("Convolution", (SRC, KERNEL, (24,))), DATA_GRADIENT, WEIGHTS_GRADIENT]


BAD = {  # the line, the word at which the mistake stands, a word of the error
    "MIOpenDriver conv -n 8 -c x": ("x", "in_channels must be an integer"),
    "MIOpenDriver conv -n 8 -c -4": ("-4", "in_channels must be an integer"),
    "MIOpenDriver conv -n 99999999999999999999": ("9999", "batchsize must be an integer"),
    "MIOpenDriver conv -n": ("-n", "line ends"),
    "MIOpenDriver conv --banana 3": ("--banana", "must be one of"),
    "MIOpenDriver conv 3 -n 3": ("3 -n", "must be one of"),
    "MIOpenDriver bnorm -n 3": ("bnorm", "must name a convolution"),
    "MIOpenDriver": ("MIOpenDriver", "line ends"),
    "MIOpenDriver conv -u 0": ("-u", "at least 1"),
    "MIOpenDriver conv -g 2": ("-g", "must divide"),
    "MIOpenDriver conv -F 8": ("-F", "a sum of"),
    "iree-boo-driver conv -F 6": ("-F", "one direction"),
    "MIOpenDriver conv --spatial_dim 4": ("--spatial_dim", "2 or 3 spatial axes"),
    "MIOpenDriver conv --in_layout NCHWc4": ("--in_layout", "each letter"),
    "MIOpenDriver conv -m both": ("-m", "conv or trans"),
    "MIOpenDriver conv -z none": ("-z", "pad_mode"),
    "MIOpenDriver conv -H 2 -F 1": ("MIOpenDriver", "Convolution:"),
}  # fmt: skip


@pytest.mark.parametrize("line", BAD)
def test_mistakes_are_told_at_their_place(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cases.txt").write_text("\n" * 6 + f"  {line}\n", encoding="utf-8")
    word, sentence = BAD[line]
    with pytest.raises(FileError, match=sentence) as caught:
        list(cases.read("cases.txt"))
    assert str(caught.value).startswith(f"cases.txt:7:{3 + line.index(word)}: ")


@pytest.mark.parametrize("line", ["convint8 -n 1", "conv -d input.bin", "conv -r 1", "conv --in_cast_type fp8"])
def test_what_nobody_can_judge_says_so(line: str) -> None:
    [case] = read(f"MIOpenDriver {line}")
    assert case.unsupported

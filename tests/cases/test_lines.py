"""Cases from lines: benchdnn's knobs multiply as benchdnn has them, tags mean layouts, every mistake has its place."""

from __future__ import annotations

import re
import string
from collections import Counter
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from convgrad import ConvgradError, FileError, NotationError, cases
from convgrad.formats import F32
from convgrad.graph.limits import DEFAULT_LIMITS, Limits
from convgrad.spec.layouts import axis_order
from convgrad.spec.operators import CONV_WEIGHTS, TRANSPOSE_WEIGHTS
from convgrad.verify.cases import lines
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.knobs import ATTRIBUTES, HARMLESS, PROBLEM, REFUSED
from convgrad.verify.cases.naming import LONGEST, named_apart, safe
from convgrad.verify.cases.tags import data_format, weights_format
from tests.support.places import DOCS, SHARED_CASES

SMALL = "mb1ic4ih6oc6oh6kh3ph1"


def called(case: Case) -> tuple[object, ...]:
    """Return all of a case that says what is computed."""
    return case.operator, case.shapes, dict(case.attributes), case.operand_format.name, case.output_format.name


def read(path: Path, text: str) -> list[Case]:
    path.write_text(text, encoding="utf-8")
    return list(cases.read(path))


# -- tags ------------------------------------------------------------------------------------------------------------


def letters_of(order: tuple[int, ...]) -> str:
    return "".join(string.ascii_lowercase[axis] for axis in order)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_every_plain_tag_of_data_is_ncx_or_nxc_or_neither(axes: int) -> None:
    spatial = "dhw"[-axes:]
    meant = {"NCX": f"nc{spatial}", "NXC": f"n{spatial}c"}
    found = Counter(data_format(letters_of(order), axes) for order in permutations(range(axes + 2)))
    assert (found["NCX"], found["NXC"]) == (1, 1)
    for layout, tag in meant.items():
        assert data_format(tag, axes) == layout
        assert data_format(letters_of(tuple(f"nc{spatial}".index(c) for c in tag)), axes) == layout
        assert data_format({"NCX": "abx", "NXC": "axb"}[layout], axes) == layout
        assert data_format(tag, axes + 1) is None
    assert {data_format(tag, axes) for tag in ("aBx16b", "ABx16a16b", "xba", "nn", "axbb")} == {None}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_tags_of_weights_lie_in_memory_as_the_layout_does(transposed: bool, groups: int) -> None:
    """Whatever the tag: the numbers of weights (g, o, i, h, w) in its order are those of the operator's layout."""
    extents = (groups, 2, 3, 4, 5)
    logical = np.arange(np.prod(extents)).reshape(extents)
    outer, inner = (2, 1) if transposed else (1, 2)  # the channels that the groups are folded into, and the others
    canonical = logical.transpose(0, outer, inner, 3, 4).reshape(groups * extents[outer], extents[inner], 4, 5)
    layouts = {
        layout: np.ascontiguousarray(canonical.transpose(np.argsort(axis_order(layout, 4)))).ravel().tolist()
        for layout in (TRANSPOSE_WEIGHTS if transposed else CONV_WEIGHTS)
    }
    found = set()
    for order in permutations(range(5)):
        layout = weights_format(letters_of(order), 2, groups, transposed)
        named = "".join("goihw"[axis] for axis in order)
        assert weights_format(named, 2, groups, transposed) == layout, named
        if layout is not None:
            assert logical.transpose(order).ravel().tolist() == layouts[layout], named
            found.add(layout)
    for order in permutations(range(4)):
        layout = weights_format(letters_of(order), 2, groups, transposed)
        assert groups == 1 or layout is None
        if layout is not None:
            assert logical[0].transpose(order).ravel().tolist() == layouts[layout]
    assert found == set(layouts)


# -- benchdnn --------------------------------------------------------------------------------------------------------

TYPES = {"FWD_B": "f32:f32:bf16", "BWD_D": "bf16:f32:f32", "BWD_W": "f32:bf16:f32", "BWD_WB": "f32:f16:f32"}


@pytest.mark.parametrize("deconv", [False, True])
@pytest.mark.parametrize("direction", TYPES)
@pytest.mark.parametrize("tags", [("axb", "any", "NXC"), ("any", "abx", "NCX"), ("any", "any", "NCX")])
def test_knobs_say_what_a_problem_line_says(direction: str, deconv: bool, tags: tuple[str, str, str]) -> None:
    """The result's place among src:wei:dst follows from the direction; a bias gradient is f32."""
    words = [f"--dir={direction.lower()}", f"--dt={TYPES[direction]}", f"--stag={tags[0]}", f"--dtag={tags[1]}"]
    line = f"{'deconv ' * deconv}{direction} f32 {tags[2]} g2{SMALL}"
    got = list(cases.read(" ".join(["--deconv" if deconv else "--conv", *words, f"g2{SMALL}"])))
    wanted = list(cases.read(line))
    assert [called(c)[:4] for c in got] == [called(c)[:4] for c in wanted]
    made = next(name for name in TYPES[direction].split(":") if name != "f32")
    assert [c.output_format.name for c in got] == [made, "f32"][: len(got)]


def test_every_descriptor_meets_every_combination_of_the_knobs_before_it(tmp_path: Path) -> None:
    found = read(
        tmp_path / "list",
        f"""# a comment
        --reset --skip-impl=ref,x64:gemm -v1 --mode=P   # nothing of the problem
        --dir=BWD_D,BWD_WB --dt=f32,bf16,f64 \\
        --stag=axb,abx {SMALL}n"first*2"
        --mb=3 --dir=BWD_W --stag=any --dt=f16, \\
              f32 {SMALL} {SMALL}_n"second"
        --mb=0 --reset {SMALL}
        """,
    )
    first, second, third = found[:18], found[18:22], found[22:]
    assert Counter(c.operator for c in first) == Counter(
        ConvolutionBackwardData=6, ConvolutionBackwardWeights=6, BiasAddBackward=6
    )
    assert Counter(c.operand_format.name for c in first) == Counter(f32=6, bf16=6, f64=6)
    assert {c.place for c in first} == {f"{tmp_path}/list:4:24"}
    assert all(c.name.startswith("first-2_BWD_") for c in first)
    assert [c.operand_format.name for c in second] == ["f16", "f32"] * 2
    assert {(c.operator, c.shapes[0]) for c in second} == {("ConvolutionBackwardWeights", (3, 4, 6, 6))}
    assert [(c.operator, c.shapes) for c in third] == [("Convolution", ((1, 4, 6, 6), (6, 4, 3, 3), (6,)))]


def test_what_comes_to_the_same_problem_is_one_case() -> None:
    knobs = "--reset --dt=f32,f32:f32:f32 --stag=any,abx,nchw --dtag=any,abcd --wtag=any,oihw --mb=0,1"
    assert [called(c) for c in cases.read(f"{knobs} {SMALL}")] == [called(c) for c in cases.read(f"--reset {SMALL}")]


def test_a_bare_list_is_of_gradients() -> None:
    operators = ["ConvolutionBackwardData", "ConvolutionBackwardWeights", "BiasAddBackward"]
    assert [c.operator for c in cases.read(SMALL)] == operators
    assert [c.operator for c in cases.read(f"--reset {SMALL}")] == ["Convolution"]


def test_bias_types() -> None:
    def formats(knobs: str) -> list[tuple[str, str]]:
        return [(c.operator, c.output_format.name) for c in cases.read(f"--reset {knobs} {SMALL}")]

    weights = ("ConvolutionBackwardWeights", "bf16")
    assert formats("--dir=BWD_W --dt=bf16") == [weights]
    assert formats("--dir=BWD_W --dt=bf16 --bia-dt=bf16") == [weights, ("BiasAddBackward", "bf16")]
    assert formats("--dir=BWD_WB --dt=bf16") == [weights, ("BiasAddBackward", "f32")]
    assert formats("--dir=BWD_WB --dt=f64")[1] == ("BiasAddBackward", "f64")
    for knobs, operands in (("FWD_D", 2), ("FWD_D --bia-dt=f32", 3), ("FWD_B", 3)):
        assert [len(c.shapes) for c in cases.read(f"--dir={knobs} {SMALL}")] == [operands]


UNSUPPORTED = {
    "--dt=f32:s8:f32": "type s8 is not supported; f32, bf16, f16, f64, f8_e4m3, f8_e5m2 are",
    "--cfg=u8s8f32": "type u8s8f32 is not supported",
    "--dir=BWD_W --dt=f32:f32:bf16": "operands of two types, f32 and bf16, are not supported",
    "--dir=BWD_D --dt=f32:f64:f64": "a result in f32 of operands in f64",
    "--stag=aBx16b": "layouts aBx16b, any, any of src, weights and dst are not supported",
    "--stag=axb --dtag=abx": "layouts axb, any, abx",
    "--wtag=OIhw16i16o": "layouts any, OIhw16i16o, any",
    "--attr-post-ops=relu": "--attr-post-ops=relu is not supported",
    "--attr-fpmath=bf16": "--attr-fpmath=bf16 is not supported",
    "--strides=1x2x3x4::": "--strides=1x2x3x4:: is not supported",
}


@pytest.mark.parametrize("knobs", UNSUPPORTED)
def test_what_is_legal_there_and_not_served_here_says_so_and_reading_goes_on(knobs: str) -> None:
    first, *others = cases.read(f"{knobs} {SMALL} --reset --dir=BWD_W {SMALL}")
    assert first.unsupported.startswith(UNSUPPORTED[knobs])
    assert [c.operator for c in others if not c.unsupported] == ["ConvolutionBackwardWeights"]


def test_knobs_are_in_one_table_each() -> None:
    assert not set(PROBLEM) & set(HARMLESS)
    assert not set(ATTRIBUTES) & (set(HARMLESS) | set(PROBLEM))
    plain = [called(c) for c in cases.read(SMALL)]
    for knob in HARMLESS:
        assert [called(c) for c in cases.read(f"--{knob}=1 {SMALL}")] == plain, knob


def test_an_empty_knob_is_the_default() -> None:
    """Also one that a list of gradients has not set: benchdnn's own default is FWD_B."""
    knobs = "--dir= --dt= --cfg= --bia-dt= --stag= --wtag= --dtag= --strides= --mb= --match= --attr-scales="
    wanted = [called(c) for c in cases.read(f"--reset {SMALL}")]
    assert [called(c) for c in cases.read(f"{knobs} {SMALL}")] == wanted
    assert [called(c) for c in cases.read(f"--reset --dt=bf16 --stag=axb --mb=7 {knobs} {SMALL}")] == wanted


MATCHES = {
    ".*kh3[^0-9].*": [3],
    "kh[35]p": [3, 5],
    'n"first': [3],
    "^mb1ic.*oh6k": [3, 5],
    "--dir=BWD_W": [],
    'kh3ph1n"first"$': [3],
    "g2mb1": [],
    "kw": [1],
    "oh6ow7": [1],
    "": [3, 5, 1],
}


@pytest.mark.parametrize("expression", MATCHES)
def test_match_looks_at_the_whole_problem(expression: str) -> None:
    """As benchdnn prints it: outputs and pads deduced, one letter where the axes are alike, no knob that is default."""
    listed = f'{SMALL}n"first" mb1_ic4_ih6_oc6_oh6_kh5 mb1ic4ih6iw7oc6kh1kw1'
    found = cases.read(f"--reset --match={expression} {listed}")
    assert [case.shapes[1][-2] for case in found] == MATCHES[expression]


def test_match_holds_until_a_reset_and_looks_at_knobs() -> None:
    knobs = "--reset --dir=BWD_W,FWD_D --dt=f32,bf16:f32:bf16,f16 --attr-fpmath=,strict --match=BWD_W.*16.*mb3 --mb=0,3"
    found = [
        (c.operator, c.operand_format.name, c.shapes[0][0]) for c in cases.read(f"{knobs} {SMALL} --reset {SMALL}")
    ]
    weights = "ConvolutionBackwardWeights"
    assert found == [(weights, "bf16", 3), (weights, "f16", 3), ("Convolution", "f32", 1)]


def test_an_included_file_is_read_in_place_and_its_knobs_stay(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text(f"--dir=BWD_W --batch=b\n{SMALL}")
    (tmp_path / "in" / "b").write_text(f"{SMALL} --dt=f16")
    (tmp_path / "b").write_text(f"--dt=bf16 {SMALL}")
    found = read(tmp_path / "list", f"--batch=in/a {SMALL} --batch=b --batch=b\nBWD_D bf16 NXC \\\n {SMALL}")
    said = [(Path(c.place).name, c.operand_format.name, c.operator[11:]) for c in found]
    assert said == [
        ("b:1:1", "f32", "BackwardWeights"),
        ("a:2:1", "f16", "BackwardWeights"),
        ("list:1:14", "f16", "BackwardWeights"),
        ("b:1:11", "bf16", "BackwardWeights"),
        ("b:1:11", "bf16", "BackwardWeights"),
        ("list:2:1", "bf16", "BackwardData"),
    ]


# -- mistakes --------------------------------------------------------------------------------------------------------

MISTAKES = {
    f"--dir=BWD_W\n{SMALL} --dirr=BWD_D": ("2:23", "--dirr is no knob .* Did you mean --dir"),
    "--dir=BWD_Q": ("1:1", "dir must be one of FWD_B, .*; got 'BWD_Q'"),
    " --dt=f32:f32": ("1:2", "one type, or three as src:wei:dst"),
    "# x\n\n  --dt=f33": ("3:3", "a type must be one of f32, .*; got 'f33'"),
    "--cfg=f99": ("1:1", "cfg must be one of f32"),
    "--mb=two": ("1:1", "mb must be a batch"),
    "--stag=a-b": ("1:1", "a tag is letters"),
    "--match=a+": ("1:1", "--match takes characters, .*; got 'a\\+'"),
    "--match=[9-0]": ("1:1", "--match takes .*; bad character range 9-0"),
    "--start=2": ("1:1", "--start is not supported: list the problems"),
    "-dt=f32": ("1:1", "a knob begins with --; got '-dt=f32'"),
    f"{SMALL} mb1ic3ih2": ("1:23", "kh must be given"),
    "mb1ic3ih2oc4kh3": ("1:1", "oh follows from the rest as 0"),
    "g3mb1ic4ih6oc6kh3": ("1:1", "g must divide ic and oc"),
    "hello": ("1:1", "a descriptor is keys with numbers"),
    f"--dt=f32, \\\n  f33 {SMALL}": ("1:1", "a type must be one of"),
    f"BWD_W f33 NXC {SMALL}": ("1:7", "expected one of f32, bf16, f16, f64, f8_e4m3, f8_e5m2; got 'f33'"),
    f"BWDW f32 NXC {SMALL}": ("1:1", "expected one of FWD_B, .*; got 'BWDW'"),
    f"BWD_W BWD_W NXC {SMALL}": ("1:7", "expected one of f32, bf16, f16, f64, f8_e4m3, f8_e5m2; got 'BWD_W'"),
    f"\nBWD_W f32 NXC:OXI {SMALL}": ("2:1", "expected one of XIO, OIX"),
    "deconv BWD_W f32 NXC mb1ic3": ("1:22", "at least one spatial axis"),
    f"BWD_W f32 NHWC {SMALL}": ("1:11", "expected one of NCX, NXC; got 'NHWC'"),
    f"deconv BWD_W f32 NXC:OIX {SMALL}": ("1:1", "expected one of XOI, IOX"),
    f"BWD_W f32 {SMALL}": ("1:1", r"a problem line is \[deconv\] DIRECTION"),
    "BWD_W f32 NXC": ("1:1", r"a problem line is \[deconv\] DIRECTION"),
    "--batch=nothing": ("1:1", "--batch must name an existing file"),
    "--batch=list": ("1:1", "must not include itself"),
    f"{SMALL} \xa0\x85x": ("1:25", "a descriptor is keys"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str) -> None:
    place, message = MISTAKES[text]
    with pytest.raises(FileError, match=rf"^{re.escape(str(tmp_path))}/list:{place}: .*{message}"):
        read(tmp_path / "list", text)


def test_a_typed_problem_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotationError, match=r"^the problem:1:9: --dirr is no knob"):
        list(cases.read(f"--conv  --dirr=x {SMALL}"))
    with pytest.raises(NotationError, match=r"^the problem:1:7: expected one of f32"):
        list(cases.read(f"BWD_W f33 NXC {SMALL}"))
    (tmp_path / "b").write_text("hello")
    with pytest.raises(FileError, match=r"/b:1:1: "):
        list(cases.read(f"--batch={tmp_path}/b"))
    for missing in ("nothing.txt", tmp_path / "nothing", "a\0b"):
        with pytest.raises(FileError, match="is neither a file nor a problem line"):
            cases.read(missing)


def test_files_that_are_no_text_or_too_long_or_nested_too_deep(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mb1\n ic\xff")
    with pytest.raises(FileError, match=r"/a:2:4: must be text in UTF-8"):
        list(cases.read(tmp_path / "a"))
    (tmp_path / "a").write_text(SMALL)
    with pytest.raises(FileError, match=r"at most 8 bytes \(file_bytes\)"):
        list(cases.read(tmp_path / "a", Limits(file_bytes=8)))
    for depth in range(5):
        (tmp_path / str(depth)).write_text(f"--batch={depth + 1}" if depth < 4 else SMALL)
    assert len(list(cases.read(tmp_path / "0", Limits(nesting=5)))) == 3
    with pytest.raises(FileError, match=r"/3:1:1: files must be nested at most 4 deep"):
        list(cases.read(tmp_path / "0", Limits(nesting=4)))


ALPHABET = 'mbicohkwpdsgn0123456789_-=:,"#\\ \n\t-BWD_FI\x00é'
SEEDS = [
    f'--reset --dir=BWD_W,BWD_D --dt=f32,bf16:bf16:f32 --stag=axb {SMALL}n"x"\n# c\n--mb=2 g2{SMALL}',
    f"deconv BWD_W f32 NXC:XOI {SMALL}\nBWD_WB bf16 NCX mb1ic3iw8oc4kw3\n",
    f"--conv --attr-post-ops=, \\\n relu --wtag=hwio,any {SMALL}",
]


@pytest.mark.parametrize("number", [2500, pytest.param(100_000, marks=pytest.mark.long)])
def test_damaged_lines_are_read_or_refused_by_their_place(number: int) -> None:
    """Whatever is typed: cases, or an error that names a word of the text."""
    rng = np.random.default_rng(0)
    refused = []
    for at in range(number):
        letters = list(SEEDS[at % len(SEEDS)])
        for _ in range(rng.integers(1, 6)):
            place, letter = rng.integers(len(letters) + 1), ALPHABET[rng.integers(len(ALPHABET))]
            letters[place : place + rng.integers(3)] = [letter] * int(rng.integers(3))
        text = "".join(letters)
        found = lines.read_typed(text, DEFAULT_LIMITS)
        refused += [(text, str(one)) for one in found if isinstance(one, NotationError)][:1]
    for text, said in refused:
        found = re.match(r"the problem:(\d+):(\d+): .", said)
        assert found, (text, said)
        line, column = map(int, found.groups())
        assert text.split("\n")[line - 1][column - 1].strip(), (text, said)
    assert number / 4 < len(refused) < number


# -- names, folders ----------------------------------------------------------------------------------------------------


def test_names_are_safe_and_of_one_case_each() -> None:
    wanted = ["a", "A", "a-2", "a", "../x", "a b", "a/b", "é", "", "x" * 400, "x" * 401, "CON:1*2"] * 3
    given = [Case(name, "", "", (), {}, F32, F32) for name in wanted]
    names = [case.name for case in named_apart(given)]
    assert len({name.casefold() for name in names}) == len(names)
    assert all(re.fullmatch(rf"[A-Za-z0-9_+=][A-Za-z0-9_+=-]{{0,{LONGEST - 1}}}", name) for name in names)
    assert names[:4] == ["a", "A-2", "a-2-2", "a-3"]
    assert names == [case.name for case in named_apart(given)]
    assert all(safe(name) == name for name in names)


def test_a_folder_is_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for place in ("z.txt", "b/list"):
        (tmp_path / place).write_text(f"BWD_W f32 NXC {SMALL}")
    (tmp_path / "a.npy").write_bytes(b"an array, which is none")
    assert [c.place for c in cases.read(tmp_path)] == [f"{tmp_path}/b/list:1:1", f"{tmp_path}/z.txt:1:1"]
    (tmp_path / "c").mkdir()
    with pytest.raises(FileError, match="must hold cases in a known notation"):
        list(cases.read(tmp_path / "c"))


def test_a_folder_with_lists_of_another_driver(tmp_path: Path) -> None:
    """Files without a descriptor are passed over, and files that include only these; the reader reports a cycle."""
    texts = {"graph": "--op-kind=0:Add --case=a.json", "all": "--batch=graph", "list": SMALL, "both": "--batch=list"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    refused: list[ConvgradError] = []
    found = list(cases.read(tmp_path, refused=refused.append))
    assert [case.place for case in found] == [f"{tmp_path}/list:1:1"] * 6
    assert [(type(one), str(one).partition(":")[0]) for one in refused] == [
        (cases.NoCaseError, f"{tmp_path}/{name}") for name in ("all", "graph")
    ]
    (tmp_path / "graph").write_text("--batch=missing")
    with pytest.raises(FileError, match="graph:1:1: --batch must name an existing file"):
        list(cases.read(tmp_path))
    (tmp_path / "graph").write_text("--batch=graph")
    with pytest.raises(FileError, match="must not include itself"):
        list(cases.read(tmp_path))


@pytest.mark.skipif(not SHARED_CASES.exists(), reason="no lists of others beside the checkout")
@pytest.mark.parametrize("path", sorted(SHARED_CASES.glob("shapes_*")), ids=lambda p: p.name)
def test_lists_of_others_are_read_as_they_are(path: Path) -> None:
    listed = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    found = list(cases.read(path))
    assert len(found) == 3 * len(listed)
    assert not any(case.unsupported for case in found)


def test_the_page_names_every_knob() -> None:
    page = (DOCS / "benchdnn.md").read_text(encoding="utf-8")
    for knob in (*PROBLEM, *ATTRIBUTES, *HARMLESS, *REFUSED, "batch", "reset", "conv", "deconv"):
        assert f"`--{knob}`" in page, knob


def test_a_function_in_place_of_a_case_is_told_its_option() -> None:
    with pytest.raises(FileError, match=r"problem line\. Pass a function with --call mine:f"):
        cases.read("mine:f")

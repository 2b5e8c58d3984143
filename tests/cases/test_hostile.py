"""Small files of cases that must not take more time than larger honest ones: each took minutes to centuries once."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from convgrad import FileError, NotationError, cases
from convgrad.graph import Limits
from convgrad.verify.cases.knobs import LONGEST_EXPRESSION, expression_of

SECONDS = 20.0  # hundreds of times what a file of the table takes
DYNAMIC = (
    "%{} = stablehlo.dynamic_conv(%a, %b, %c) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {{}} "
    "{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : "
    "(tensor<1x1x1xf32>, tensor<1x1x1xf32>, tensor<1x2xi64>) -> tensor<1x1x1xf32>\n"
)
LABELS = "{} = f32[1,1,1] convolution(f32[1,1,1] x, f32[1,1,1] y), dim_labels=" + "a_" * 8000 + "\n"
NAMED = 'mb1ic3ih8oc4kh3n"' + "1" * 100 + '"\n'

HOSTILE: dict[str, Callable[[Path], str]] = {
    "an expression with many stars": lambda _: f"--match=x{'.*[0-9]' * 13}z\n{NAMED * 100}",
    "values of knobs in all combinations": lambda _: (
        f"--mb={','.join(map(str, range(9000)))} --stag={'abx,' * 9000}abx\n{NAMED}"
    ),
    "the same value often": lambda _: f"--mb=1 --stag={'abx,' * 1400}abx --dtag={'abx,' * 1400}abx\n{NAMED}",
    "files that include the next one twice": lambda folder: included(folder, "{}"),
    "and by another path each time": lambda folder: included(folder, f"../{folder.name}/{{}}"),
    "labels of HLO": lambda _: "".join(LABELS.format(number) for number in range(100)),
    "a constant with many extents": lambda _: (
        f"%c = stablehlo.constant dense<0> : tensor<{'1x' * 8000}\n{''.join(map(DYNAMIC.format, range(500)))}"
    ),
    "lines that continue": lambda _: f"%0 = stablehlo.convolution(%a, %b\n{('  , ' + 'x' * 20000 + chr(10)) * 190}",
}


def included(folder: Path, name: str) -> str:
    """Return a text that includes a file, which includes another, and so on; each of the 30 files does so twice."""
    for number in range(30):
        (folder / str(number)).write_text(f"--batch={name.format(number + 1)}\n" * 2)
    (folder / "30").write_text("hello\n")
    return "--batch=0"


@pytest.mark.every(3)
@pytest.mark.parametrize("text_of", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("of_folder", [False, True])
def test_a_hostile_file_is_read_or_refused_soon(
    text_of: Callable[[Path], str], of_folder: bool, tmp_path: Path
) -> None:
    (tmp_path / "list.txt").write_text(text_of(tmp_path))
    started, refused = time.perf_counter(), list[object]()
    source = tmp_path if of_folder else tmp_path / "list.txt"
    list(cases.read(source, Limits(file_bytes=1 << 22), refused.append))
    assert time.perf_counter() - started < SECONDS


def test_limits_of_included_files_and_of_cases(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(included(tmp_path, "{}"))
    with pytest.raises(FileError, match=r"all included files must have at most 5000 bytes \(file_bytes\) together"):
        list(cases.read(tmp_path / "list", Limits(file_bytes=5000)))
    text = "--dir=BWD_W,BWD_D --mb=1,2,3 mb1ic4ih6oc6kh3"
    (tmp_path / "list").write_text(f"{text} {text.rpartition(' ')[2]}")
    assert len(list(cases.read(tmp_path / "list", Limits(cases=12)))) == 12
    with pytest.raises(FileError, match=r":1:46: .* at most 11 cases \(cases\); with this one they are 12"):
        list(cases.read(tmp_path / "list", Limits(cases=11)))


def test_an_expression_selects_what_re_selects() -> None:
    draw, items = random.Random(0), ("a", "b", "0", ".", "[ab]", "[^a]", "[0-9]", r"\.", "-")
    for _ in range(3000):
        text = "".join(draw.choice(items) + draw.choice(("", "", "*")) for _ in range(draw.randrange(6)))
        text = f"{draw.choice(('', '^'))}{text}{draw.choice(('', '$'))}" or "a"
        expression = expression_of(text)
        assert expression is not None
        for searched in ("".join(draw.choices("ab0.-", k=draw.randrange(7))) for _ in range(5)):
            assert expression.search(searched) == (re.search(text, searched) is not None), (text, searched)
    with pytest.raises(NotationError, match=f"at most {LONGEST_EXPRESSION} characters in all"):
        next(cases.read(f"--match={'a' * (LONGEST_EXPRESSION + 1)} mb1ic4ih6oc6kh3"))

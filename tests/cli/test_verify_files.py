"""``convgrad verify`` by files: what it exports, and results and operands that other programs left in folders."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convgrad import files
from convgrad.cli.exits import UsageError
from convgrad.formats import FORMATS
from tests.support.verify_helpers import LINES, Run, here, junit, options, said_by_the_command  # noqa: F401 - fixtures


@pytest.mark.parametrize("kind", [".npy", ".npz", ".bin"])
def test_what_is_exported_and_computed_elsewhere_is_judged(said: Run, kind: str) -> None:
    assert said("cases.txt", "--export", "out", "--with-references", "--kind", kind, "--seed", 3)[0] == 0
    code, out, err = said("cases.txt", "--got", "out")  # its operands are those of seed 3
    assert (code, err) == (0, ""), out
    assert said("cases.txt", "--got", "out", "--json")[1].count('"operands": "out"') == 5
    assert said("cases.txt", "--export", "out")[0] == 3  # the files exist


def test_results_lie_elsewhere_than_operands(said: Run) -> None:
    said("cases.txt", "--export", "given", "--seed", 3)
    said("cases.txt", "--export", "both", "--seed", 3, "--with-references")
    Path("got").mkdir()
    for path in Path("both").iterdir():
        if path.name.split(".")[1].startswith(("diff_weights", "diff_bias", "diff_src", "dst")):
            path.rename(Path("got") / path.name)
    assert said("cases.txt", "--got", "got", "--operands", "given")[0] == 0
    code, out, _ = said("cases.txt", "--got", "got")  # of operands made up otherwise
    assert (code, "5 wrong" in out) == (1, True)


def test_a_result_that_is_missing_leaves_the_others_judged(said: Run) -> None:
    said("cases.txt", "--export", "out", "--with-references")
    gone, *others = sorted(Path("out").glob("*diff_weights.npy"))
    gone.unlink()
    code, out, _ = said("cases.txt", "--got", "out", "--junit", "report.xml")
    assert (code, "4 ok, 1 not judged" in out, "looked for" in out) == (3, True, True)
    assert junit("report.xml") == {"tests": 5, "failures": 0, "errors": 1, "skipped": 0}
    files.write(str(others[0]), np.full_like(files.read(str(others[0])), 7), force=True)
    assert said("cases.txt", "--got", "out")[0] == 1  # what is wrong counts first


def test_one_result_may_be_a_file(said: Run) -> None:
    said(LINES[2], "--export", "out", "--with-references")
    (path,) = Path("out").glob("*.dst.npy")
    assert said(LINES[2], "--got", path)[0] == 0
    assert said("cases.txt", "--got", path)[0] == 2


def test_f32_files_may_hold_results_of_narrower_types(said: Run) -> None:
    said(LINES[1], "--export", "out", "--with-references", "--kind", ".bin")
    (bits,) = Path("out").glob("*.diff_src.bin")
    right = np.fromfile(bits, FORMATS["bf16"].dtype).reshape(1, 4, 7)
    files.write("kept.npy", right.astype(np.float32))
    assert said(LINES[1], "--got", "kept.npy")[0] == 0
    files.write("unrounded.npy", right.astype(np.float32) * np.float32(1.001))
    code, out, _ = said(LINES[1], "--got", "unrounded.npy")
    assert (code, "must be bf16 1x4x7" in out, "--dtype f32" in out) == (1, True, True)
    assert "of 28" in said(LINES[1], "--got", "unrounded.npy", "--dtype", "f32")[1]


OF_ANOTHER_CASE = {
    "shape": (lambda array: np.concatenate([array, array]), r"src of .* must be f32 2x9x4; its file has f32 4x9x4"),
    "wider type": (lambda array: array.astype(np.float64) / 3, "must be f32 2x9x4; its file has f64 2x9x4"),
    "narrower type": (lambda array: array.astype(np.float16), "must be f32 2x9x4; its file has f16 2x9x4"),
    "integers": (lambda array: array.astype(np.int32), "must be f32 2x9x4; its file has int32 2x9x4"),
    "wider type of the same numbers": (lambda array: array.astype(np.float64), None),
    "byte order": (lambda array: array.astype(">f4"), None),
}


# A function that takes only native byte order, as most do.
NATIVE = """
import convgrad
def run(operator, src, weights, **attributes):
    assert src.dtype.isnative
    return convgrad.run(operator, src, weights, **attributes)
"""


@pytest.mark.parametrize(("changed", "message"), OF_ANOTHER_CASE.values(), ids=OF_ANOTHER_CASE)
def test_operands_in_files_are_those_of_the_case(
    said: Run, changed: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]], message: str | None
) -> None:
    """Otherwise another problem would be judged under the name of the case."""
    case = "FWD_D f32 NXC mb2ic4iw9oc6ow9kw3pw1"
    said(case, "--export", "out")
    (src,) = Path("out").glob("*.src.npy")
    np.save(src, changed(np.load(src)))
    Path("judged.py").write_text(NATIVE)
    code, out, err = said(case, "--operands", "out", "--call", "judged:run")
    assert code == (0 if message is None else 3), out
    assert message is None or re.search(message, out + err)


def test_a_raw_result_of_a_single_case(said: Run) -> None:
    said(LINES[1], "--export", "out", "--with-references", "--kind", ".bin")
    (bits,) = Path("out").glob("*.diff_src.bin")
    numbers = bits.read_bytes()
    Path("my.bin").write_bytes(numbers)
    assert said(LINES[1], "--operands", "out", "--got", "my.bin")[0] == 0
    Path("my.bin").write_bytes(numbers[:-4] + bytes(4))
    assert said(LINES[1], "--operands", "out", "--got", "my.bin")[0] == 1
    Path("my.bin").write_bytes(numbers[:-2])
    code, out, _ = said(LINES[1], "--operands", "out", "--got", "my.bin")
    assert (code, "takes 56 bytes; the file has 54" in out) == (3, True)


def test_functions_of_libraries_are_isolated_and_may_have_a_timeout() -> None:
    of_library = "cases.txt", "--call", "build/libconv.so:backward", "--signature", "f32 NXC *src"
    assert options(*of_library, "--timeout", "3").isolate
    with pytest.raises(UsageError, match="--timeout goes with --isolate"):
        options(*of_library, "--no-isolate", "--timeout", "3")

"""Mistakes in files of cases: the rest is read; ``convgrad verify`` says and counts them, its exit code says so."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convgrad import ConvgradError, FileError, NotationError, cases
from convgrad.cli import main
from convgrad.cli.verify_cases import LISTED
from convgrad.verify.cases import NoCaseError, PassedOverError
from tests.support.graph_documents import good
from tests.support.verify_helpers import LINES, Run, here, junit, said_by_the_command, values  # noqa: F401 - fixtures

SMALL = "mb1ic2ih4oc2kh3ph1"
LIST = f"""--dir=BWD_W --dirr=BWD_D {SMALL}
mb1ic2ih4 hello {SMALL}
--stag=a-b {SMALL}
--batch=nothing --batch=other
BWD_W f33 NXC {SMALL}
BWD_D f32 NXC {SMALL}
MIOpenDriver conv --nothing 3
g3{SMALL}
"""
OTHER = f"--match=a+ {SMALL}"
WRONG = ["list:1:13", "list:2:1", "list:2:11", "list:3:1", "other:1:1", "list:4:1", "list:5:7", "list:7:19", "list:8:1"]


def relu() -> str:
    ends = [{"id": number, "dtype": "f32", "shape": [1, 2, 3]} for number in (0, 1)]
    return json.dumps({"graph": [{"kind": "ReLU", "inputs": ends[:1], "outputs": ends[1:]}]})


def test_the_rest_of_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(LIST)
    (tmp_path / "other").write_text(OTHER)
    refused: list[ConvgradError] = []
    found = list(cases.read(tmp_path / "list", refused=refused.append))
    assert [Path(case.place).name for case in found] == [
        "list:1:26", "list:2:17", "list:3:12", "other:1:12", "list:6:1"
    ]  # fmt: skip
    assert all(isinstance(error, FileError) for error in refused)
    assert sorted(Path(str(error).partition(": ")[0]).name for error in refused) == sorted([*WRONG])
    with pytest.raises(FileError, match=r"list:1:13: --dirr is no knob"):
        list(cases.read(tmp_path / "list"))


def test_a_typed_mistake_is_raised() -> None:
    with pytest.raises(NotationError, match="the problem:1:1: --dirr is no knob"):
        list(cases.read(f"--dirr=x {SMALL}", refused=lambda error: None))


def test_files_of_a_folder_without_a_case(tmp_path: Path) -> None:
    """Files of no notation, empty folders and graphs without a convolution are passed over, whatever stands beside."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.json").write_text(relu())
    (folder / "b").mkdir()
    (folder / "c.mlir").write_text("module {\n}\n")
    (folder / "d.json").write_text(json.dumps(good()))
    (folder / "e.txt").write_text(f"BWD_W f32 NXC {SMALL}")
    (folder / "f.npy").write_bytes(b"an array, which is none")
    refused: list[ConvgradError] = []
    assert len(list(cases.read(folder))) == len(list(cases.read(folder, refused=refused.append))) == 3
    assert [type(error) for error in refused] == [NoCaseError, NoCaseError, PassedOverError, NoCaseError]
    assert str(refused[2]) == f"{folder}/d.json: 1 GELU cannot be judged"
    with pytest.raises(NoCaseError, match="must have an op of the convolution family; it has ReLU"):
        list(cases.read(folder / "a.json"))


def test_a_damaged_file_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.json").write_text('{"graph": [{"kind": 1}]}')
    (folder / "b.txt").write_bytes(b"mb1\xff")
    (folder / "c.txt").write_text(f"BWD_W f32 NXC {SMALL}")
    refused: list[ConvgradError] = []
    assert len(list(cases.read(folder, refused=refused.append))) == 1
    assert [Path(str(error).partition(":")[0]).name for error in refused] == ["a.json", "b.txt"]


def test_foreign_files_of_a_folder(said: Run) -> None:
    """Files that have nothing to do with cases are passed over, and listed at the end; by name, they are refused."""
    Path("folder").mkdir()
    Path("folder/list").write_text(f"BWD_W f32 NXC {SMALL}")
    foreign = [Path("folder", name) for name in ("arrays.npz", "lib.so", "notes", "relu.json")]
    np.savez(foreign[0], src=np.ones(3))
    foreign[1].write_bytes(b"\x7fELF\0\xff")
    foreign[2].write_text("--reset --case=pattern/f32.json\nsome words about the cases")
    foreign[3].write_text(relu())
    code, out, err = said("folder")
    assert (code, out.splitlines()[-1].partition("; ")[2]) == (0, "4 files without a case")
    assert [line.split(":")[1] for line in err.splitlines()] == [f" passed over {path}" for path in foreign]
    for path in foreign[:3]:
        assert said("folder/list", str(path))[0] == 3


OTHERS = (
    "notes.md",
    "a.npy",
    "a.bin",
    "b.tensor0.bin",
    "photo.png",
    "empty",
    ".hidden",
    "sub/run.py",
    "sub/other.json",
)


def write_others(folder: Path) -> list[str]:
    """Write files of every kind that has no case, two of them in a folder; return their paths in reading order."""
    (folder / "sub").mkdir(parents=True, exist_ok=True)
    for name in OTHERS:
        (folder / name).write_bytes(b"" if name == "empty" else b"{}")
    return sorted(str(folder / name) for name in OTHERS)


@pytest.mark.parametrize("more", [(), ("--strict",), ("--export", "out"), ("--print-tolerance",), ("--json",)])
def test_every_file_without_a_case_is_listed(said: Run, more: tuple[str, ...]) -> None:
    others = write_others(Path("folder"))
    Path("folder/list").write_text(f"BWD_W f32 NXC {SMALL}")
    code, out, err = said("folder", *more)
    assert code == (3 if more == ("--strict",) else 0)
    listed = values(out)[-1]["empty"] if more == ("--json",) else re.findall(r"passed over (.*)", err)
    assert sorted(line.partition(": must hold cases")[0] for line in listed) == others
    assert ("9 files without a case" in out) == (more in ((), ("--strict",)))


def test_what_stands_in_a_folder_and_is_no_file(said: Run) -> None:
    """Links to nothing, in circles, and pipes are refused by name: something may have been left out."""
    Path("folder/in").mkdir(parents=True)
    Path("folder/list").write_text(f"BWD_W f32 NXC {SMALL}")
    Path("folder/gone").symlink_to("nowhere")
    Path("folder/in/around").symlink_to("..")
    os.mkfifo("folder/pipe.json")
    code, out, err = said("folder")
    assert (code, out.splitlines()[-1].partition("; ")[2]) == (3, "3 refused")
    for name, words in (
        ("gone", "it is neither"),
        ("in/around", "a folder that contains it"),
        ("pipe.json", "neither"),
    ):
        assert re.search(f"folder/{name}: must .*{words}", err)


def test_a_folder_that_cannot_be_listed(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Path.iterdir

    def refused(path: Path) -> Any:
        if path.name == "sub":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    Path("folder/sub").mkdir(parents=True)
    Path("folder/list").write_text(f"BWD_W f32 NXC {SMALL}")
    monkeypatch.setattr(Path, "iterdir", refused)
    code, out, err = said("folder")
    assert (code, "1 ok" in out, "folder/sub: cannot be read: Permission denied" in err) == (3, True, True)


def test_results_among_the_cases_are_not_listed(said: Run) -> None:
    line = f"BWD_W f32 NXC {SMALL}"
    assert said(line, "--export", "folder", "--with-references")[0] == 0
    Path("folder/list").write_text(line)
    assert said("folder", "--got", "folder")[::2] == (0, "")
    assert said("folder")[2].count("passed over folder/mb") == len(list(Path("folder").iterdir())) - 1


def test_each_pattern_selects_a_case(said: Run) -> None:
    code, _, err = said("cases.txt", "--only", "*BWD_D*", "--only", "*nothing*")
    assert (code, "no case has a name like *nothing*; there are" in err) == (2, True)


def test_errors_of_files_have_no_command_to_repeat(said: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("got").mkdir()
    code, out, err = said("cases.txt", "--got", "got")
    assert (code, "looked for" in out, "reproduce" in out + err) == (3, True, False)
    for words in (["nothing.json"], ["BiasAddBackward", "nothing.npy"]):
        assert main(["run", *words]) == 3
        assert "reproduce" not in capsys.readouterr().err
    assert main(["run", "BWD_W f32 NXC ic2iw4oc2ow4kw1", "--dtype", "f64"]) == 2
    assert "reproduce: convgrad run" in capsys.readouterr().err


def test_verify_counts_what_is_refused(said: Run) -> None:
    Path("folder").mkdir()
    Path("folder/list").write_text(LIST)
    Path("folder/other").write_text(OTHER)
    Path("folder/relu.json").write_text(relu())
    code, out, err = said("folder", "--junit", "report.xml")
    wrong = len(WRONG) + 1  # the other file is read again by itself
    assert (code, out.splitlines()[-1].partition("; ")[2]) == (3, f"{wrong} refused; 1 file without a case")
    assert all(f"convgrad: folder/{place}: " in err for place in WRONG)
    assert junit("report.xml") == {"tests": 8 + wrong, "failures": 0, "errors": wrong, "skipped": 0}
    code, out, _ = said("folder", "--json")
    last = values(out)[-1]
    assert (code, len(last["refused"]), last["summary"]) == (3, wrong, {"ok": 8})
    assert [place.partition(":")[0] for place in last["empty"]] == ["folder/relu.json"]


def test_verify_of_many_mistakes_lists_some(said: Run) -> None:
    Path("list").write_text("hello\n" * 100 + LINES[1])
    code, _, err = said("list")
    assert (code, len(err.splitlines())) == (3, LISTED + 1)
    assert err.splitlines()[-1] == f"convgrad: and {100 - LISTED} more that cannot be read (--json lists all)"


def test_verify_of_mistakes_alone(said: Run) -> None:
    Path("list").write_text("hello\n--dirr=x")
    code, out, err = said("list")
    assert (code, out) == (3, "")
    assert [line.partition(": ")[2][:8] for line in err.splitlines()] == ["list:1:1", "list:2:1"]


def test_a_wrong_result_counts_before_a_refusal(said: Run) -> None:
    Path("list").write_text(f"hello\n{LINES[0]}")
    assert said("list", "--call", "foreign_functions:wrong_weights")[0] == 1

"""Every example of the site and of the README runs as it stands there, and what is shown under it is what it says."""

from __future__ import annotations

import doctest
import importlib.util
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convgrad
from tests.docs.page_blocks import PYTHON, SHELL, SHOWN, blocks, run_page
from tests.support.engine_helpers import HOST
from tests.support.places import DOCS, ROOT

README, SKILL = ROOT / "README.md", ROOT / "SKILL.md"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if any(block.runs for block in blocks(page))]
SLOW = (
    "import jax",
    "torch.compile(",
    "convgrad bench",
    "convgrad conformance",
    "def distinct(",  # the training of training_step.md, eight times
    "convgrad verify --collection hard",  # isolated as on the pages ci.md and SKILL.md
)  # a page's quick tier ends before a block that has any
QUICK = [page for page in PAGES if not any(word in next(b for b in blocks(page) if b.runs).text for word in SLOW)]
LONG = [page for page in PAGES if any(word in block.text for word in SLOW for block in blocks(page) if block.runs)]


pytestmark = pytest.mark.usefixtures("beside_examples")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


# -- the site --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", QUICK, ids=named)
def test_a_page_runs(page: Path) -> None:
    """Up to what is slow."""
    assert run_page(page, SLOW)[0] > 0


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # what PyTorch loads to compile
@pytest.mark.parametrize("page", LONG, ids=named)
def test_a_page_runs_to_its_end(page: Path) -> None:
    assert run_page(page)[0] > 0


@pytest.mark.parametrize("page", [README, SKILL, *sorted(DOCS.rglob("*.md"))], ids=named)
def test_each_block_says_whether_it_runs(page: Path) -> None:
    """A block of another language would be passed over in silence."""
    for block in blocks(page):
        assert block.language in (*PYTHON, *SHELL, *SHOWN) or block.language[0] == "{", (str(block), block.language)


# -- README ----------------------------------------------------------------------------------------------------

ALONE = list(blocks(README))
BY_HAND = [block for block in ALONE if block.language in PYTHON]


OF_X86 = pytest.mark.skipif(
    not HOST or platform.machine() != "x86_64", reason="the instruction sets are those of x86-64"
)
FIRST, SECOND = [block for block in ALONE if block.language == "sh"][:2]


def test_the_readme_has_its_two_commands_first() -> None:
    assert FIRST.text.startswith("pip install . &&\npython examples/")
    assert "pytest" in SECOND.text


def assert_shown(printed: str) -> None:
    """Assert that the README shows these lines, some of them as three dots, with one hash, which another page has."""
    assert doctest.OutputChecker().check_output(FIRST.under, printed, doctest.ELLIPSIS), printed
    (found,) = set(re.findall(r"  ([0-9a-f]{16})  ", printed))
    assert f"`{found}` each time" in (DOCS / "same_bits.md").read_text(encoding="utf-8")


@OF_X86
@pytest.mark.long
def test_the_readme_s_first_command_prints_what_it_shows() -> None:
    """On any processor, because the names are those of settings, and all hashes are equal."""
    command = [sys.executable, *FIRST.text.splitlines()[-1].split()[1:]]
    assert_shown(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@OF_X86
def test_some_lines_of_the_readme_s_first_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first two lines and the last one, in this process."""
    program = FIRST.text.splitlines()[-1].split()[1]
    spec = importlib.util.spec_from_file_location("train_numpy", ROOT / program)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("CONVGRAD_MAX_ISA", module.ISAS[0])
    module.THREADS, module.ISAS = module.THREADS[:2], ()
    module.one_process()
    module.main()
    assert_shown(capsys.readouterr().out)


@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=[pytest.mark.long] * ("import jax" in b.text)) for at, b in enumerate(BY_HAND)]
)
def test_the_readme_s_python_runs(at: int) -> None:
    """Each block alone: somebody copies one."""
    BY_HAND[at].run({"__name__": "readme"})


def test_the_skill_runs() -> None:
    """The page for automated authors is short, because they read all of it before they work."""
    ran, _ = run_page(SKILL)
    assert ran == 6
    assert len(SKILL.read_text(encoding="utf-8").split()) <= 350


def test_an_error_shown_is_the_one_raised() -> None:
    """Wherever the example stands: what is told of a result of the wrong size."""
    src, diff_dst = np.ones((1, 56, 56, 64), np.float32), np.ones((1, 28, 28, 64), np.float32)
    with pytest.raises(convgrad.InvalidShapeError) as caught:
        convgrad.convolution_backward_weights(src, diff_dst, (3, 3, 64, 64), strides=2)
    texts = [" ".join(page.read_text(encoding="utf-8").split()) for page in (README, *DOCS.rglob("*.md"))]
    assert any(f"InvalidShapeError: {caught.value}" in text for text in texts)


# -- what runs a page sees it break -----------------------------------------------------------------------------

PAGE = """
```python
import numpy as np
import convgrad

np.save("ones.npy", np.ones((1, 4, 4, 2), np.float32))
print(np.load("ones.npy").shape)
print("and more")
```

```text
(1, 4, ..., 2)
```

- in a list, and later on the page

  ```python
  >>> np.load("ones.npy").sum()
  np.float32(32.0)
  >>> convgrad.bias_add_backward(np.ones(3))
  Traceback (most recent call last):
    ...
  convgrad.errors.InvalidShapeError: BiasAddBackward: diff_dst must have batch and channels, ...
  ```

```python
convgrad.bias_add_backward(np.ones(3))
```

    InvalidShapeError: BiasAddBackward: diff_dst must have
    batch and channels, a rank of at least 2; ...

```sh
ls is not run
convgrad run BiasAddBackward ones.npy \\
  -o sum.npy  # a comment
convgrad run BiasAddBackward none.npy  # exits with 3
```

```
convgrad info
```

```py
not_run()
```
"""
BREAKS = {  # what a page may get wrong: what is told
    ('"ones.npy", np', '"one.npy", np'): "ones.npy",
    ("(1, 4, ..., 2)", "(1, 5, ..., 2)"): "page.md:2 says",
    ("32.0", "33.0"): "page.md:17 says",
    ("np.load", "numpy.load"): "'numpy' is not defined",
    ("errors.InvalidShapeError", "errors.InvalidOpError"): "rank of at least 2",
    ("diff_dst must have batch", "diff_dst has batch"): "page.md:17 says",
    ("InvalidShapeError: BiasAddBackward: diff_dst must have\n", "InvalidShapeError: diff_dst has"): "page.md:26 says",
    ("convgrad.bias_add_backward(np.ones(3))\n```", "convgrad.bias_ad()\n```"): "bias_ad",
    ("  -o sum", "  --oh sum"): "--oh sum",
    ("exits with 3", "exits with 2"): "none.npy",
    ("convgrad info", "convgrad inform"): "inform",
}


def test_a_page_of_all_kinds_runs(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    assert run_page(tmp_path / "page.md")[0] == 5
    assert (np.load("sum.npy") == 16).all()
    assert run_page(tmp_path / "page.md", ("a list", 'load("ones.npy").sum'))[0] == 1


@pytest.mark.parametrize("change", BREAKS)
def test_a_page_that_is_wrong_fails(change: tuple[str, str], tmp_path: Path) -> None:
    assert change[0] in PAGE
    (tmp_path / "page.md").write_text(PAGE.replace(*change))
    with pytest.raises(Exception, match=re.escape(BREAKS[change])):
        run_page(tmp_path / "page.md")

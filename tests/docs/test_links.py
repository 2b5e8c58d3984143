"""A site with a dead link, a missing place or a wordless image is told from one that holds together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.links import findings, main

INDEX = """<a href="more/page.html#here">in</a> <a href="#top">up</a> <a href="https://example.org/gone">out</a>
<h1 id="top">an <em>a</em></h1><img src="a%20b.png" alt="two dots"><link href="style.css?v=1">"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name in ("a b.png", "style.css"):
        (tmp_path / name).touch()
    (tmp_path / "index.html").write_text(INDEX)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "page.html").write_text('<a href="../index.html">back</a><p id="here">')
    return tmp_path


def test_a_site_that_holds_together(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(site) == 0
    assert capsys.readouterr().out == "5 links inside, 0 findings; 1 outside, not followed\n"


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ('<a href="gone.html">x</a>', "gone.html leads nowhere"),
        ('<a href="../index.html#gone">x</a>', "../index.html#gone has no such place"),
        ('<a href="#Here">x</a>', "#Here has no such place"),
        ('<a href="../../index.html">x</a>', "../../index.html leads nowhere"),
        ('<a href="../more">x</a>', "../more leads nowhere"),
        ('<img src="../a%20b.png" alt=" ">', "the image ../a%20b.png has no alt text"),
        ('<img src="../a%20b.png"/>', "the image ../a%20b.png has no alt text"),
        ("at p<em>stride + k</em>dilation", "p<em>stride + k</em>dilation has lost its asterisks to emphasis"),
        ('<img src="../a%20b.png" srcset="../a%20b.png 1x, gone.png 2x" alt="two dots">', "gone.png leads nowhere"),
        ('<object data="gone.svg"></object>', "gone.svg leads nowhere"),
        ('<video poster="gone.png"></video>', "gone.png leads nowhere"),
        ('<svg><use xlink:href="gone.svg#a"/></svg>', "gone.svg#a leads nowhere"),
        ('<a href="file:///work/page.html">x</a>', "file:///work/page.html leads nowhere"),
        ('<img src="gone.png" alt="gone">', "gone.png leads nowhere"),
        ("model: &lt;MagicMock name='mock.nn'&gt;", "MagicMock is not for readers"),
        ("tuple[TypeAliasForwardRef('Array')]", "TypeAliasForwardRef is not for readers"),
        ("<p>:raises The errors are</p>", ":raises is not for readers"),
    ],
)
def test_what_is_planted_is_found(site: Path, planted: str, found: str) -> None:
    with (site / "more" / "page.html").open("a") as page:
        page.write(planted)
    assert list(findings(site)) == [f"more/page.html: {found}"]
    assert main(site) == 1


def test_a_folder_without_a_site_is_no_good_site(tmp_path: Path) -> None:
    assert main(tmp_path) == 1

"""Whether a built site holds together: links lead somewhere, images have words, products asterisks, types their names.

``python tests/links.py build/site`` prints what does not, a line each, and counts the links that lead outside.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = ("href", "src", "poster", "xlink:href")


class Page(HTMLParser):
    """What a page has: the places in it, what it links to or loads, its images without words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places = {""}
        self.links: list[str] = []
        self.wordless: list[str] = []
        self.feed(text)
        self.stand_ins = sorted(set(re.findall(r"MagicMock|\w*ForwardRef|:raises", text)))  # in signatures and fields
        self.products = re.findall(r"[^>\s]*\w<em>[^<]*</em>\w+", text)  # a*b + c*d without backticks

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {place for name in ("id", "name") if (place := found.get(name))}
        loads = (*LOADS, "data") if tag == "object" else LOADS
        self.links += [link for name in loads if (link := found.get(name)) is not None]
        self.links += [one.split()[0] for one in (found.get("srcset") or "").split(",") if one.strip()]
        if tag == "img" and not (found.get("alt") or "").strip():
            self.wordless.append(found.get("src") or "")


def outside(link: str) -> bool:
    parts = urlsplit(link)
    return parts.scheme != "file" and bool(parts.scheme or parts.netloc)


def findings(site: Path) -> Iterator[str]:
    """Yield what is wrong with a site, a line each."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        yield from (f"{where}: the image {source} has no alt text" for source in page.wordless)
        yield from (f"{where}: {product} has lost its asterisks to emphasis" for product in page.products)
        yield from (f"{where}: {text} is not for readers" for text in page.stand_ins)
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if outside(link):
                continue
            if parts.scheme or not target.is_relative_to(site.resolve()) or not target.is_file():
                yield f"{where}: {link} leads nowhere"
            elif target in pages and unquote(parts.fragment) not in pages[target].places:
                yield f"{where}: {link} has no such place"


def main(site: Path) -> int:
    """Print the findings and the numbers; return the exit code."""
    found = list(findings(site))
    links = [link for path in site.rglob("*.html") for link in Page(path.read_text(encoding="utf-8")).links]
    away = sum(map(outside, links))
    print(*found, f"{len(links) - away} links inside, {len(found)} findings; {away} outside, not followed", sep="\n")
    return 1 if found or not links else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

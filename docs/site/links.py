"""Checks a built site: every link and picture leads to a file of it, and every place in a page exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The links and the places of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


@cache
def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken(site: Path) -> Iterator[str]:
    """`page: link` for every link of a site's pages that leads nowhere in it."""
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # shown at any address, so its links are absolute
            continue
        for link in dict.fromkeys(_read(path).links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path.parent / unquote(parts.path) if parts.path else path
            if not target.is_file() and not (target / "index.html").is_file():
                yield f"{path.relative_to(site)}: {link}"
            elif parts.fragment and target.suffix == ".html" and not _has(target, unquote(parts.fragment)):
                yield f"{path.relative_to(site)}: {link} (no such place)"


def _has(path: Path, place: str) -> bool:
    return place in _read(path).places


def outside(site: Path) -> Iterator[str]:
    """`page: address` for every script, style or picture that a page would fetch from elsewhere."""
    for path in sorted(site.rglob("*.html")):
        for link in dict.fromkeys(_read(path).links):
            suffix = Path(urlsplit(link).path).suffix
            if urlsplit(link).netloc and suffix in (".js", ".css", ".woff", ".woff2", ".png", ".svg", ".ico"):
                yield f"{path.relative_to(site)}: {link}"

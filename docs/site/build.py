"""Builds the documentation site into `site/`: `make docs`, without network.

The pages are the Markdown of this repository at the paths that they have here, so that their links and pictures hold as
they are, and pages that are made: a gallery of all parts and a reference of the Python interface. Zensical turns them
into HTML. It is by the authors of Material for MkDocs, whose configuration it continues, builds in a second, and needs
neither plugins nor a network for search, for light and dark and for small screens.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.site import gallery, reference

ROOT = Path(__file__).resolve().parents[2]
GUIDES = (
    *(
        "commands",
        "python",
        "claims",
        "fair_comparison",
        "tasks",
        "your_own",
        "bring_your_own",
        "ladders",
        "measure",
        "watching",
        "replay",
    ),
    *("checkpoints", "launchers", "lightning", "hydra", "loggers"),
)
"""The guides in the order of the menu; others follow."""
OTHERS = {
    "How verdicts are judged": "docs/statistics.md",
    "Verdicts that changed": "docs/changed_verdicts.md",
    "Files and exit statuses": "docs/files.md",
    "Measurements": "docs/measurements.md",
    "Reliability": "docs/reliability.md",
    "Oracles": "tests/oracles/README.md",
    "Traps": "tests/TRAPS.md",
}
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
OUTSIDE = re.compile(r"[a-z]+:|#")

Nav = list[dict[str, Any]]


def main(arguments: Sequence[str]) -> int:
    """Write the pages and build the site; prints the path of its first page."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="where the site is written")
    parser.add_argument(
        "--no-pictures", action="store_true", help="leave out the pictures of parts, which take longest"
    )
    options = parser.parse_args(arguments)
    work = options.out.parent / f".{options.out.name}.pages"
    shutil.rmtree(work, ignore_errors=True)
    settings = write(work, pictures=not options.no_pictures)
    shutil.rmtree(options.out, ignore_errors=True)
    built = subprocess.run([sys.executable, "-m", "zensical", "build", "-f", str(settings)], cwd=work, check=False)
    if built.returncode == 0:
        shutil.move(work / "site", options.out)
        shutil.rmtree(work)
        print(options.out / "index.html")
    return built.returncode


def write(work: Path, *, pictures: bool) -> Path:
    """Write the pages and the settings of the site into a folder; returns the file of the settings."""
    pages = work / "pages"
    pages.mkdir(parents=True)
    texts = {
        **{path: (ROOT / path).read_text(encoding="utf-8") for path in sources()},
        **gallery.pages(pages, pictures),
    }
    texts |= reference.pages()
    texts |= {f"examples/{path.stem}.md": notebook(path) for path in sorted((ROOT / "examples").glob("*.py"))}
    for path, text in texts.items():
        (pages / path).parent.mkdir(parents=True, exist_ok=True)
        (pages / path).write_text(_with_linked_files(path, text, texts, pages), encoding="utf-8")
    settings = work / "zensical.toml"
    own = Path(__file__).with_name("site.toml").read_text(encoding="utf-8")
    nav = f'[project]\ndocs_dir = "pages"\nsite_dir = "site"\nnav = {_toml(navigation(texts))}'
    settings.write_text(own.replace("[project]", nav, 1), encoding="utf-8")
    return settings


def sources() -> Iterator[str]:
    """The Markdown of this repository that is shown."""
    yield from ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", *OTHERS.values())
    for folder in ("docs/guides", "experiments"):
        yield from (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).rglob("*.md")))


def notebook(path: Path) -> str:
    """A script of cells, `# %%` and `# %% [markdown]`, as a page."""
    page = []
    for cell in re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
        kind, _, body = cell.partition("\n")
        if kind.strip() == "[markdown]":
            page.append(re.sub(r"^# ?", "", body.strip(), flags=re.M))
        else:
            page.append(f"```python\n{body.strip()}\n```")
    return "\n\n".join(page) + "\n"


def _with_linked_files(path: str, text: str, texts: Mapping[str, str], pages: Path) -> str:
    """A page in which links to folders lead to their README; files that are linked, and no page, are copied along."""

    def kept(found: re.Match[str]) -> str:
        link = found[1] or found[2]
        if OUTSIDE.match(link):
            return found[0]
        target, _, place = link.partition("#")
        whole = (ROOT / path).parent.joinpath(target).resolve()
        name = whole.relative_to(ROOT).as_posix()
        if whole.is_dir():
            readme = f"{target.rstrip('/')}/README.md"
            return found[0].replace(link, readme) if f"{name}/README.md" in texts else found[0]
        if whole.suffix == ".py" and f"{name[:-3]}.md" in texts:  # a notebook is a page here
            return found[0].replace(link, f"{target[:-3]}.md")
        if name not in texts and whole.is_file():
            (pages / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(whole, pages / name)
        if found[2] and name.endswith(".md"):  # HTML is kept as it is, so its links to pages must be those of the site
            page = (
                f"{target.removesuffix('README.md')}index.html"
                if target.endswith("README.md")
                else f"{target[:-3]}.html"
            )
            return found[0].replace(link, page + (f"#{place}" if place else ""))
        return found[0]

    return LINK.sub(kept, text)


def navigation(texts: Mapping[str, str]) -> Nav:
    """The menu: every page once."""

    def titled(paths: Sequence[str]) -> Nav:
        return [{_title(texts[path]): path} for path in paths]

    guides = [path for path in texts if path.startswith("docs/guides/")]
    order = {f"docs/guides/{name}.md": number for number, name in enumerate(GUIDES)}
    exercises = [path for path in texts if re.fullmatch(r"experiments/[^/]+/README\.md", path)]
    tables = [path for path in texts if path.startswith("experiments/") and path.endswith("table.md")]
    parts = [path for path in texts if path.startswith("parts/") and path != gallery.INDEX]
    menu: Nav = [
        {"Start": "README.md"},
        {"Guides": titled(sorted(guides, key=lambda path: (order.get(path, len(order)), path)))},
        {"Examples": titled([path for path in texts if path.startswith("examples/")])},
        {"Parts": [gallery.INDEX, *titled(parts)]},
        {
            "Exercises": [
                "experiments/README.md",
                *titled(exercises),
                {"Tables": [{_study(path): path} for path in tables]},
            ]
        },
        {"How it is known": [{title: path} for title, path in OTHERS.items()]},
        {"Python interface": titled([path for path in texts if path.startswith("reference/")])},
        {"Contributing": "CONTRIBUTING.md"},
        {"Changelog": "CHANGELOG.md"},
    ]
    return menu


def _title(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("# ")).removeprefix("# ").replace("`", "")


def _study(path: str) -> str:
    """The study of `experiments/04_head_count/width/results/gpu/table.md`: 04_head_count/width, gpu."""
    study, _, rest = path.removeprefix("experiments/").partition("/results/")
    return ", ".join([study, *rest.split("/")[:-1]])


def _toml(value: Any) -> str:
    """A list of names and paths as TOML."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return "{ " + ", ".join(f"{_toml(name)} = {_toml(held)}" for name, held in value.items()) + " }"

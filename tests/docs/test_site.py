"""The documentation site: every page is built and listed, every option shown, every link leads somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site import build, docstrings, gallery, links
from swapformer.catalogue import option_files
from swapformer.paths import conf_dir


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages before they are HTML, without pictures of parts."""
    work = tmp_path_factory.mktemp("site") / "work"
    build.write(work, pictures=False)
    return work


def test_every_option_has_its_place_in_the_gallery(pages: Path) -> None:
    index = (pages / "pages" / gallery.INDEX).read_text("utf-8")
    for group, options in option_files(conf_dir()).items():
        text = (pages / "pages" / "parts" / f"{group.replace('/', '_')}.md").read_text("utf-8")
        for name in options:
            assert f"\n## `{name}`\n" in text and f"`{name}`" in index, f"{group}={name}"
    alibi = (
        (pages / "pages" / "parts" / "model_position.md")
        .read_text("utf-8")
        .partition("## `alibi`")[2]
        .partition("\n## ")[0]
    )
    for said in ("arXiv:2108.12409", "decay: 8.0", "`has_bias=True`", "BLOOM and MPT"):
        assert said in alibi, said


def test_every_page_is_in_the_menu_once(pages: Path) -> None:
    menu = (pages / "zensical.toml").read_text("utf-8")
    for path in (pages / "pages").rglob("*.md"):
        assert menu.count(f'"{path.relative_to(pages / "pages").as_posix()}"') == 1, path


@pytest.mark.evidence
def test_every_link_leads_somewhere_and_nothing_is_fetched(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("zensical", reason="needs the extra `docs`")
    assert build.main(["--out", str(tmp_path / "site"), "--no-pictures"]) == 0, capfd.readouterr()
    assert len(list((tmp_path / "site").rglob("*.html"))) > 100
    assert list(links.broken(tmp_path / "site")) == []
    assert list(links.outside(tmp_path / "site")) == []


def test_a_notebook_becomes_a_page(tmp_path: Path) -> None:
    script = tmp_path / "one.py"
    script.write_text("# %% [markdown]\n# # One\n#\n# Two `three`.\n\n# %%\nx = 1  # four\n\n# five\ny = x\n")
    assert build.notebook(script) == "# One\n\nTwo `three`.\n\n```python\nx = 1  # four\n\n# five\ny = x\n```\n"


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">b</a> <a href="#there">a</a> <img src="gone.svg"> <p id="x">'
    )
    (tmp_path / "b.html").write_text('<p id="here"> <script src="https://example.org/x.js"></script>')
    assert list(links.broken(tmp_path)) == ["a.html: #there (no such place)", "a.html: gone.svg"]
    assert list(links.outside(tmp_path)) == ["b.html: https://example.org/x.js"]


def test_docstrings_become_markdown() -> None:
    doc = """y = x * W_o, shapes [B, T].

    Two `lines *of*` text.

    Args:
        decay: the smallest slope is 2^(−decay),
            8 in the paper.
        a, b: widths.

        table   of code
    """
    assert docstrings.markdown(doc) == (
        "y = x \\* W\\_o, shapes \\[B, T\\].\n\nTwo `lines *of*` text.\n\n**Args**\n\n"
        "- `decay`: the smallest slope is 2^(−decay), 8 in the paper.\n- `a, b`: widths.\n\n"
        "```text\ntable   of code\n```"
    )

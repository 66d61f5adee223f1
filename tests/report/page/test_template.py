"""The page in a real browser: what its script adds, what it is without, and how it looks on small and dark screens."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report.browser import Browser, browsing, needed
from report.store import Store, falling
from swapformer.report.build import Report, build

MEANS = {"rope": 1.5, "alibi": 1.4, "a <b> & c": 1.7, "none": 1.6}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Four arms with learning curves and a probe; arm none has a diverged trial."""
    arms = {"rope": [], "alibi": ["model/position=alibi"], "a <b> & c": ["model.bias=false"], "none": []}
    claim = {"text": "alibi", "better": {"arm": "alibi", "than": "rope", "metric": "val/loss", "margin": 0.0}}
    store = Store(tmp_path_factory.mktemp("page"), arms, "rope", ["val/loss"], range(4), claims=[claim])
    generator = np.random.default_rng(3)
    for index, (arm, mean) in enumerate(MEANS.items()):
        for seed in store.seeds:
            loss = mean + generator.normal(0, 0.02)
            status = "diverged" if (arm, seed) == ("none", 1) else "finished"
            history = {"val/loss": falling(loss, 20, generator.normal(0, 0.004, 20))}
            parameters = {"total": 800_000 + 1000 * index, "non_position": 800_000}
            store.write_trial(arm, seed, {"val/loss": loss}, status, history, {"probe/x": loss}, parameters=parameters)
    store.write_manifest()
    return build(store.study, store.runs)


@pytest.fixture(scope="module")
def page(report: Report) -> Path:
    return report.directory / "report.html"


def said(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="said">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    return dict(json.loads(found.group(1)))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def test_values_that_are_told_are_those_that_are_drawn(report: Report, page: Path) -> None:
    """A line's places in the SVG, read back through the frame that the page was given, are the mean over seeds."""
    (figure,) = [each for each in said(page).values() if each["name"] == "training step" and len(each["marks"]) == 4]
    root = ET.parse(report.directory / "curve_val_loss.svg").getroot()
    histories = report.records.histories
    for marks in figure["marks"]:
        arm = marks["arm"]
        rows = histories[(histories["arm"] == arm) & (histories["status"] == "finished")]
        means = rows.groupby("step")["value"].mean()
        assert marks["x"] == means.index.tolist() and marks["y"] == pytest.approx(means.tolist(), rel=1e-6)
        for text, mean in zip(marks["text"], means, strict=True):
            value, low, high = map(float, re.findall(r"[\d.]+", text))
            assert (
                value == pytest.approx(mean, abs=10 ** -len(text.split()[0].partition(".")[2])) and low <= value <= high
            )
        panel = figure["panels"][marks["panel"]]
        lines = [path.get("d", "") for group in root.iter(f"{SVG}g") if group.get("class") == marks["key"]
                 for path in group.findall(f"{SVG}path") if "stroke-width: 1.6" in path.get("style", "")]  # fmt: skip
        places = [[tuple(map(float, pair)) for pair in re.findall(r"[ML] ([\d.-]+) ([\d.-]+)", d)] for d in lines]
        drawn = max((each for each in places if each), key=len)
        left, top, right, bottom = panel["box"]
        xs = [panel["x"][0] + (x - left) / (right - left) * (panel["x"][1] - panel["x"][0]) for x, _ in drawn]
        ys = [panel["y"][0] + (bottom - y) / (bottom - top) * (panel["y"][1] - panel["y"][0]) for _, y in drawn]
        step = (panel["y"][1] - panel["y"][0]) / (bottom - top)  # of a point on paper
        for x, y in zip(xs, ys, strict=True):
            assert y == pytest.approx(
                np.interp(x, means.index, means.to_numpy()), abs=step
            )  # lines are drawn a little simpler


def test_a_forest_tells_the_difference_of_the_table(report: Report, page: Path) -> None:
    (figure,) = [each for each in said(page).values() if each["name"] == "difference"]
    rows = {row.arm: row.summaries["val/loss"].comparison for row in report.rows}
    for marks in figure["marks"]:
        comparison = rows[marks["arm"]]
        assert comparison is not None and marks["x"] == pytest.approx([comparison.difference])
        assert marks["text"] == [f"{comparison.text} {comparison.interval_text}"]
    assert any(math.isinf(c.upper) for c in rows.values() if c) and any("∞" in m["text"][0] for m in figure["marks"])


TABLE = "document.querySelector('table.sortable')"
ORDER = f"[...{TABLE}.tBodies[0].rows].map(row => row.dataset.arm)"


@needed
def test_heads_sort_by_keyboard_and_say_so(browser: Browser, page: Path) -> None:
    browser.open(page)
    head = f"{TABLE}.tHead.rows[0].cells[2]"
    seen = [(browser.run(ORDER), browser.run(f"{head}.ariaSort"))]
    browser.run(f"{head}.querySelector('button').focus()")
    for _ in range(3):
        browser.press("Enter")
        seen.append((browser.run(ORDER), browser.run(f"{head}.ariaSort")))
    by_loss = sorted(MEANS, key=MEANS.__getitem__)
    assert seen == [
        (list(MEANS), "none"), (by_loss, "ascending"), (by_loss[::-1], "descending"), (list(MEANS), "none"),
    ]  # fmt: skip
    assert browser.complaints == [] and set(browser.requests) == {page.resolve().as_uri()}


@needed
def test_numbers_with_intervals_are_sorted_as_numbers(browser: Browser, page: Path) -> None:
    browser.open(page)
    cells = ["−0.1", "−0.5", "0.5", "10.2 [9.9, 10.5]", "100", "2e−05", "9.5 [9.1, 9.9]", "–", "(old)"]
    column = f"[...{TABLE}.tBodies[0].rows].map(row => row.cells[1].textContent)"
    browser.run(
        f"body = {TABLE}.tBodies[0]; row = body.rows[0].cloneNode(true); body.replaceChildren(...{json.dumps(cells)}"
        ".map((text, at) => { const made = row.cloneNode(true); made.dataset.place = at; "
        "delete made.cells[1].dataset.v; made.cells[1].textContent = text; return made; }));"
    )
    browser.run(f"{TABLE}.tHead.rows[0].cells[1].querySelector('button').click()")
    if browser.run(f"{TABLE}.tHead.rows[0].cells[1].ariaSort") == "descending":
        browser.run(f"{TABLE}.tHead.rows[0].cells[1].querySelector('button').click()")
    expected = ["−0.5", "−0.1", "2e−05", "0.5", "9.5 [9.1, 9.9]", "10.2 [9.9, 10.5]", "100"]
    assert [each for each in browser.run(column) if each[0] != "("] == [*expected, "–"]


@needed
def test_the_filter_leaves_arms_by_name_or_setting_in_every_table(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run(
        "f = document.getElementById('filter'); f.value = 'POSITION alibi'; f.dispatchEvent(new Event('input'))"
    )
    shown = "[...document.querySelectorAll('tr[data-arm]')].filter(r => getComputedStyle(r).display !== 'none')"
    assert set(browser.run(f"{shown}.map(r => r.dataset.arm)")) == {"alibi"}
    assert browser.run("document.getElementById('left').textContent") == "1 of 4 arms"
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert set(browser.run(f"{shown}.map(r => r.dataset.arm)")) == set(MEANS)  # on paper all are there
    browser.call("Emulation.setEmulatedMedia", media="")


@needed
def test_one_switch_hides_an_arm_in_all_figures(browser: Browser, page: Path) -> None:
    browser.open(page)
    state = """(() => {
        const keys = [...document.querySelectorAll('.legend [data-key]')];
        const key = keys.find(k => k.textContent.includes('alibi')).dataset.key;
        const all = [...document.querySelectorAll(`figure .${key}`)].filter(g => !g.closest('[id$=legend_1]'));
        const figures = new Set(all.map(g => g.closest('figure')));
        const hidden = all.filter(g => getComputedStyle(g).display === 'none').length;
        return [figures.size, hidden / all.length];
    })()"""
    figures, hidden = browser.run(state)
    assert figures >= 4 and hidden == 0
    browser.run(
        "k = [...document.querySelectorAll('.legend button')].find(k => k.textContent.includes('alibi')); k.click()"
    )
    assert browser.run(state)[1] == 1 and browser.run("k.getAttribute('aria-pressed')") == "false"
    browser.run("k.click()")
    assert browser.run(state)[1] == 0


@needed
def test_the_pointer_and_the_arrow_keys_tell_the_nearest_values(browser: Browser, page: Path) -> None:
    number, figure = next((n, f) for n, f in said(page).items() if f["by"] == "x")
    browser.open(page)
    svg = f"document.querySelector('figure[data-figure=\"{number}\"] svg')"
    panel = figure["panels"][0]
    left, top, right, bottom = panel["box"]
    share = (1000 - panel["x"][0]) / (panel["x"][1] - panel["x"][0])
    x, y = browser.run(f"""(async () => {{ {svg}.scrollIntoView({{block: 'center'}});
        await new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)));
        const there = new DOMPoint({left + share * (right - left) + 2}, {(top + bottom) / 2});
        const p = there.matrixTransform({svg}.getScreenCTM());
        return [p.x, p.y]; }})()""")
    browser.point(x, y)
    told = "d => [d.querySelector('b').textContent, d.querySelector('span').textContent]"
    lines = browser.run(f"[...document.querySelectorAll('#tip div')].map({told})")
    assert browser.run("document.querySelector('#tip i').textContent") == "training step 1000"
    expected = {marks["arm"]: marks["text"][marks["x"].index(1000)] for marks in figure["marks"]}
    assert dict(lines) == expected and browser.run("document.querySelector('#tip').hidden") is False
    browser.run(f"{svg}.focus()")
    browser.press("ArrowRight")
    assert browser.run("document.querySelector('#tip i').textContent") == "training step 1100"


@needed
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_never_scrolls_sideways_and_wide_tables_scroll_in_their_boxes(
    browser: Browser, page: Path, width: int
) -> None:
    browser.open(page, width=width)
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.run("document.documentElement.scrollWidth") <= width
    box = "t.closest('.scroll').getBoundingClientRect()"
    assert browser.run(f"[...document.querySelectorAll('table')].every(t => {box}.right <= innerWidth)")


@needed
def test_dark_follows_the_system_and_text_stays_readable(browser: Browser, page: Path) -> None:
    """Contrast of text to the page and to cards of at least 4.5, as WCAG asks."""
    contrast = """(() => {
        const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
        const of = (e, what) => {
            const [r, g, b] = getComputedStyle(e)[what].match(/[\\d.]+/g).map(v => linear(v / 255));
            return .2126 * r + .7152 * g + .0722 * b;
        };
        const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        const [page, card] = [document.body, document.querySelector('.card')].map(e => of(e, 'backgroundColor'));
        const texts = ['h1', '.facts', 'figcaption'].map(name => of(document.querySelector(name), 'color'));
        return [page, Math.min(...texts.flatMap(t => [ratio(t, page), ratio(t, card)]))];
    })()"""
    for scheme, dark in (("light", False), ("dark", True)):
        browser.open(page, scheme=scheme)
        background, least = browser.run(contrast)
        assert (background < 0.2) is dark and least >= 4.5


@needed
def test_on_paper_nothing_is_folded_away(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open(page)
    unfolded = "[...document.querySelectorAll('details')].filter(d => d.open).length"
    browser.run(f"window.seen = []; addEventListener('beforeprint', () => seen.push({unfolded}))")
    browser.paper(tmp_path / "page.pdf")
    assert browser.run("seen") == [browser.run("document.querySelectorAll('details').length")]
    assert browser.run(unfolded) == 0 and (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


@needed
def test_without_script_the_page_is_a_plain_one(browser: Browser, page: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.html"
    plain.write_text(re.sub(r"<script>.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    browser.open(plain)
    assert browser.run(ORDER) == list(MEANS)
    assert browser.run("getComputedStyle(document.querySelector('.tools')).display") == "none"
    assert browser.run("document.querySelectorAll('button').length") == 0
    assert browser.run("document.querySelectorAll('.legend .key').length") == 4


@needed
def test_a_figure_is_saved_as_svg_in_light_colours_and_its_data_as_csv(
    report: Report, page: Path, browser: Browser
) -> None:
    """What the links of a dark page hand out: the SVG has no variable of the page left, the CSV is the figure's own."""
    browser.open(page, scheme="dark")
    saved = browser.run("""(async () => {
        const found = {}, blobs = [], make = URL.createObjectURL;
        URL.createObjectURL = (blob) => (blobs.push(blob), make(blob));
        for (const link of document.querySelectorAll(".save a")) {
            link.click();
            while (!blobs.length) await new Promise((done) => setTimeout(done, 10));
            found[link.download] = await blobs.pop().text();
        }
        return found;
    })()""")
    figures = {figure.name: figure for figure in report.views[0].figures}
    assert saved.keys() == {f"{name}.svg" for name in figures} | {f"{name}.csv" for name in figures}
    assert all(saved[f"{name}.csv"] == figure.csv and figure.csv.count("\n") > 1 for name, figure in figures.items())
    for name in figures:
        root = ET.fromstring(saved[f"{name}.svg"])
        assert root.tag == f"{SVG}svg" and "var(--" not in saved[f"{name}.svg"]
        assert "#1f2328" in saved[f"{name}.svg"], "ink, as on light pages"

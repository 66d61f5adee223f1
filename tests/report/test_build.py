"""The report as files: complete, escaped, self-contained, reproducible, quick; and honest about trouble."""

from __future__ import annotations

import base64
import csv
import errno
import hashlib
import io
import json
import math
import os
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from report.store import ENVIRONMENT, MACHINE, Store, falling
from swapformer.errors import UsageError
from swapformer.report.build import Report, build
from swapformer.report.figures.style import arm_styles
from swapformer.report.page.tables import BEGIN, END
from swapformer.report.results_csv import RESULT_COLUMNS
from swapformer.report.statistics.evidence import Evidence

LENGTHS = (16, 32, 64)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Six arms along an axis, one impossible; trials diverged, failed, killed, missing, corrupt, in two classes."""
    arms = {f"h{h}": [f"model.num_heads={h}"] for h in (1, 2, 4, 8, 16)} | {"h7": ["model.num_heads=7"]}
    claims: list[dict[str, Any]] = [
        {"text": "1 is worse", "worse": {"arm": "h1", "than": "h8", "metric": "val/loss", "margin": 0.01}},
        {"text": "7 too", "worse": {"arm": "h7", "than": "h8", "metric": "val/loss", "margin": 0.01}},
        {"text": "<script>alert(1)</script>", "diverges": {"arm": "h16", "than": "h8", "margin": 0.1}},
        {"text": "16 is best", "within": {"arm": "h16", "of": "best", "metric": "val/loss", "relative": 0.01}},
    ]
    store = Store(
        tmp_path_factory.mktemp("store"), arms, "h8", ["val/loss", "val/accuracy@64", "probe/x"], claims=claims
    )
    store.directions = {"val/loss": "lower"} | {f"val/accuracy@{n}": "higher" for n in LENGTHS}
    store.manifest = {
        "question": "Do heads matter? <img src=x onerror=alert(1)>",
        "axis": {"key": "model.num_heads", "values": {f"h{h}": h for h in (1, 2, 4, 7, 8, 16)}},
        "impossible": [{"arm": "h7", "reason": "7 does not divide 128"}],
        "longest_trained": 32,
        "figures": [
            {"name": "curve_val_loss", "caption": "Loss by | step", "y": "nats", "lines": {"a counter": 9.5}},
            {"name": "axis_val_loss"},
        ],
    }
    fates = {("h16", 1): "diverged", ("h16", 4): "diverged", ("h4", 3): "failed", ("h2", 5): "running"}
    generator = np.random.default_rng(1)
    common = generator.normal(0, 0.05, 8)
    for index, arm in enumerate(("h1", "h2", "h4", "h8", "h16")):
        for seed in store.seeds:
            loss = 2.0 - 0.1 * index + common[seed] + generator.normal(0, 0.01)
            status = fates.get((arm, seed), "finished")
            metrics = {"val/loss": loss} | {f"val/accuracy@{n}": 1 - n / 100 - loss / 50 for n in LENGTHS}
            curve = {"val/loss": falling(loss, 20, np.zeros(20))[: 8 if status == "diverged" else 20]}
            extra: dict[str, Any] = {}
            if (arm, seed) == ("h2", 6):
                extra = {"environment": ENVIRONMENT | {"device": "cuda"}, "machine": MACHINE | {"processor": "another"}}
            if (arm, seed) != ("h2", 7):
                store.write_trial(
                    arm, seed, metrics, status, curve, {"probe/x": loss / 10}, reason="it <broke>", **extra
                )
    (store.directory("h8", 2) / "record.json").write_text("{")
    store.write_manifest()
    return store


@pytest.fixture(scope="module")
def report(troubled: Store) -> Report:
    return build(troubled.study, troubled.runs)


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return (report.directory / "report.html").read_text(encoding="utf-8")


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def test_the_page_refers_to_nothing_outside_itself(page: str, parsed: Tags) -> None:
    assert not [tag for tag, _ in parsed.tags if tag in ("link", "img", "iframe", "object", "embed")]
    data = [{"type": "application/json", "id": name} for name in ("said", "saved")]
    assert [attrs for tag, attrs in parsed.tags if tag == "script"] == [*data, {}]
    references = [
        value for _, attrs in parsed.tags for key, value in attrs.items() if key in ("href", "src", "xlink:href")
    ]
    assert references and all(value and value.startswith(("#", "data:image/png;base64,")) for value in references)
    assert "@import" not in page and not re.search(r"url\((?!#)", page)
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_the_browser_may_run_the_pages_own_script_and_load_nothing(page: str, parsed: Tags) -> None:
    (policy,) = [attrs["content"] for tag, attrs in parsed.tags if "http-equiv" in attrs]
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy is not None and policy.startswith("default-src 'none';") and f"script-src 'sha256-{digest}'" in policy


def test_what_users_wrote_is_escaped(page: str, parsed: Tags) -> None:
    assert "<script>alert" not in page and "<img src=x" not in page and "it <broke>" not in page
    assert "<script>alert(1)</script>" in parsed.text and "it <broke>" in parsed.text


def test_every_reference_inside_the_figures_resolves_and_no_id_occurs_twice(page: str, parsed: Tags) -> None:
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"url\(#([^)]+)\)", page)) | set(re.findall(r'xlink:href="#([^"]+)"', page))
    assert used and used <= set(ids)


def test_every_color_variable_of_the_figures_is_defined_in_light_and_dark(page: str) -> None:
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", page))
    assert used and all(page.count(f"--{name}:") >= 1 for name in used)
    dark = page[page.index("prefers-color-scheme:dark") :]
    assert all(f"--{name}:" in dark for name in used if re.fullmatch(r"s\d+|ink|soft|grid|card|alarm", name))


def test_the_page_tells_all_that_a_reader_needs(parsed: Tags, troubled: Store) -> None:
    for text in (
        "Do heads matter?", "1 is worse", "supported", "undecided", "swapformer study 99_fake", "0123456789abcdef",
        "7 does not divide 128", "2 diverged", "1 failed", "1 killed", "1 missing", "1 corrupt", "model.num_heads=4",
        "804\N{NARROW NO-BREAK SPACE}096", "2 environment classes", "cpu · torch 2.13.0 · 1 thread · deterministic",
        "steps: 2000", "2 kinds of processors (another; one · AVX2)",
    ):  # fmt: skip
        assert text in parsed.text, text


def test_an_impossible_arm_stands_in_no_table(report: Report) -> None:
    assert [row.arm for row in report.rows] == ["h1", "h2", "h4", "h8", "h16"]
    lines = (report.directory / "table.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in lines if line.startswith("| ")][5:] == [
        "arm", "h1", "h2", "h4", "**h8** (baseline)", "h16",
    ]  # fmt: skip


def test_results_csv_has_one_row_per_arm_seed_and_metric(report: Report, troubled: Store) -> None:
    rows = list(csv.DictReader(io.StringIO((report.directory / "results.csv").read_text())))
    assert list(rows[0]) == list(RESULT_COLUMNS)
    metrics = ["val/loss", "val/accuracy@64", "probe/x", "val/accuracy@16", "val/accuracy@32"]
    expected = [
        (arm, str(seed), metric) for arm in ("h1", "h2", "h4", "h8", "h16") for seed in range(8) for metric in metrics
    ]
    looks = [row["seed"] for row in rows if row["metric"] == "look@7" and row["status"] == "judged"]
    assert looks == ["0", "1", "2", "3", "4", "5", "6"], "the seeds with which every trial has ended"
    assert {row["metric"] for row in rows if row["status"] == "stated"} >= {
        "longest_trained",
        "impossible",
        "parameters",
    }
    rows = [row for row in rows if row["arm"]]
    assert sorted((row["arm"], row["seed"], row["metric"]) for row in rows) == sorted(expected)
    assert {row["value"] for row in rows if row["status"] != "finished"} == {""}  # never zero
    losses = [float(row["value"]) for row in rows if row["arm"] == "h1" and row["metric"] == "val/loss"]
    record = json.loads((troubled.directory("h1", 0) / "record.json").read_text())
    assert losses[0] == record["metrics"]["val/loss"]  # to the last digit
    assert {row["evaluation_se"] for row in rows if row["metric"] == "probe/x"} == {""}


def test_the_table_holds_scipys_numbers(report: Report) -> None:
    rows = {row.arm: row for row in report.rows}
    losses = {arm: report.records.metrics.query("arm == @arm and metric == 'val/loss'") for arm in ("h1", "h8")}
    summary = rows["h1"].summaries["val/loss"]
    expected = stats.ttest_1samp(losses["h1"]["value"], 0).confidence_interval()
    assert (summary.mean, summary.lower, summary.upper) == pytest.approx((losses["h1"]["value"].mean(), *expected))
    assert summary.evaluation_error == pytest.approx(0.004)
    both = losses["h1"].merge(losses["h8"], on="seed")
    comparison = summary.comparison
    assert comparison is not None and comparison.pairs == 7
    expected = stats.ttest_rel(both["value_x"], both["value_y"]).confidence_interval()
    assert (comparison.lower, comparison.upper) == pytest.approx(tuple(expected))


def test_means_are_over_finished_trials_and_the_interval_of_a_diverged_arm_is_open(report: Report) -> None:
    row = {row.arm: row for row in report.rows}["h16"]
    assert row.counts == {"finished": 6, "diverged": 2}
    comparison = row.summaries["val/loss"].comparison
    assert comparison is not None and comparison.upper == math.inf and math.isfinite(comparison.lower)
    assert comparison.pairs == 5  # paired seeds that finished; 2 diverged
    assert "∞)" in (report.directory / "table.md").read_text()


def test_figures_are_there_wellformed_and_described(report: Report) -> None:
    names = {path.name for path in report.directory.glob("*.svg")}
    assert names == {
        "axis_val_loss.svg", "axis_probe_x.svg", "length_val_accuracy.svg", "curve_val_loss.svg", "gap_val_loss.svg",
        "forest_val_loss.svg", "forest_val_accuracy_64.svg", "forest_probe_x.svg",
    }  # fmt: skip
    for name in names:
        root = ET.parse(report.directory / name).getroot()
        assert root.find("{http://www.w3.org/2000/svg}title") is not None
    text = "".join(ET.parse(report.directory / "axis_val_loss.svg").getroot().itertext())
    assert "2 diverged" in text and "model.num_heads" in text


def test_a_second_build_writes_the_same_bytes(troubled: Store, report: Report) -> None:
    before = {path.name: path.read_bytes() for path in report.directory.iterdir()}
    build(troubled.study, troubled.runs)
    assert {path.name: path.read_bytes() for path in report.directory.iterdir()} == before
    assert not any(b"<dc:date>" in content for content in before.values())


def test_a_published_figure_has_the_words_and_levels_of_the_study_file(report: Report) -> None:
    """Only the listed one: the figure of the same metric over the axis keeps the report's words."""
    curve, axis = ((report.directory / f"{name}_val_loss.svg").read_text() for name in ("curve", "axis"))
    assert ">nats<" in curve and ">a counter: 9.5 ↑<" in curve
    assert ">nats<" not in axis and "a counter" not in axis
    shown = [figure for view in report.views for figure in view.figures if figure.caption == "Loss by | step"]
    assert [figure.name for figure in shown] == ["curve_val_loss"]


def test_a_listed_figure_stands_in_the_readme_and_one_without_a_caption_is_linked(
    troubled: Store, tmp_path: Path
) -> None:
    begin = BEGIN.format("99_fake")
    (tmp_path / "README.md").write_text(f"# x\n\n{begin}\nold\n{END}\n\nrest\n")
    build(troubled.study, troubled.runs, publish_to=tmp_path / "part" / "results")
    text = (tmp_path / "README.md").read_text()
    assert "![Loss by \\| step](part/results/curve_val_loss.svg)\n\n*Loss by \\| step*\n" in text
    assert "Figures: [axis_val_loss](part/results/axis_val_loss.svg)." in text
    assert "old" not in text and text.endswith("rest\n")


@pytest.mark.parametrize(
    ("name", "largest", "complaint"),
    [
        ("curve_val_los", 10**6, "'curve_val_los' is not one; it draws .*curve_val_loss"),
        ("curve_val_loss", 99, "may have 99 bytes, but curve_val_loss has"),
    ],
)
def test_a_figure_that_cannot_be_published_is_one_clear_line(
    name: str, largest: int, complaint: str, troubled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swapformer.report.build.LARGEST_PUBLISHED", largest)
    manifest = troubled.manifest | {"figures": [{"name": name}]}
    monkeypatch.setattr(troubled, "manifest", manifest)
    troubled.write_manifest()
    try:
        with pytest.raises(UsageError, match=complaint):
            build(troubled.study, troubled.runs, publish_to=tmp_path / "results")
        assert not (tmp_path / "results").exists()
    finally:
        monkeypatch.undo()
        troubled.write_manifest()


def test_an_arm_has_one_colour_in_all_parts_of_an_exercise() -> None:
    palette = ("a", "b", "c", "d")
    one, two = arm_styles(["a", "c"], "a", False, palette), arm_styles(["c", "d", "b"], "d", False, palette)
    assert one["c"].color == two["c"].color != arm_styles(["c", "d"], "c", False)["c"].color
    assert len({style.color for style in two.values()}) == 3 and two["d"].key == "arm0"
    assert arm_styles(["a", "x"], "a", False, palette) == arm_styles(["a", "x"], "a", False)


def test_publishing_copies_all_but_the_page_and_removes_only_our_stale_figures(troubled: Store, tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "own.svg").write_text("<svg/>")
    (results / "curve_gone.svg").write_text("<!-- written by swapformer report -->\n<svg/>")
    published = build(troubled.study, troubled.runs, publish_to=results)
    names = {path.name for path in results.iterdir()}
    assert "own.svg" in names and "curve_gone.svg" not in names and "report.html" not in names
    assert {"table.md", "results.csv"} <= names
    assert {name for name in names if name.endswith(".svg")} == {"own.svg", "axis_val_loss.svg", "curve_val_loss.svg"}
    assert {path for path in published.files if path.parent == results} == {results / n for n in names - {"own.svg"}}


def test_publishing_leaves_no_history_of_an_earlier_training(
    troubled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(troubled.study, troubled.runs, publish_to=tmp_path / "results")
    assert (tmp_path / "results" / "history.csv").is_file()
    monkeypatch.setattr("swapformer.report.results_csv.LARGEST_HISTORY", 10)  # now it is too long
    build(troubled.study, troubled.runs, publish_to=tmp_path / "results")
    assert not (tmp_path / "results" / "history.csv").exists()


def test_a_directory_that_cannot_be_written_is_one_clear_line(troubled: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="must be written to"):
        build(troubled.study, troubled.runs, publish_to=tmp_path / "file")


def test_a_store_that_may_only_be_read_is_reported_all_the_same(
    troubled: Store, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT or path == troubled.study / "report":
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return opened(path, flags, *mode)

    opened = os.open
    monkeypatch.setattr("swapformer.results.lock.os.open", refuse)
    found = build(troubled.study, troubled.runs)
    assert "Read-only" in found.unwritten and found.files == ()
    assert found.verdicts == report.verdicts
    console = Console(file=io.StringIO(), width=100)
    found.render(console)
    assert found.unwritten in console.file.getvalue()  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="may only be read"):
        build(troubled.study, troubled.runs, publish_to=troubled.study / "report")


def test_what_a_killed_report_left_is_removed_by_the_next(troubled: Store, report: Report) -> None:
    left = troubled.study / "report" / ".tmp-report.html.0123"
    left.write_text("half a pa")
    build(troubled.study, troubled.runs)
    assert not left.exists()


def test_as_dict_is_strict_json_with_the_verdicts(report: Report) -> None:
    plain = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert plain["complete"] is False
    assert plain["trials"] == {"finished": 34, "diverged": 2, "failed": 1, "killed": 1, "missing": 1, "corrupt": 1}
    first = plain["verdicts"][0]
    assert first["outcome"] == "supported"
    assert first["differences"][0]["lower"] > first["differences"][0]["claimed_above"] == 0.01
    assert first["differences"][0]["claimed_below"] is None
    assert plain["impossible"] == {"h7": "7 does not divide 128"}


def test_the_terminal_shows_verdicts_and_markup_is_not_interpreted(report: Report) -> None:
    out = io.StringIO()
    report.render(Console(file=out, width=110))
    text = out.getvalue()
    assert (
        "✓ 1 is worse: worse by at least 0.2" in text and "<script>alert(1)</script>" in text and "report.html" in text
    )


def test_what_limits_a_verdict_is_printed_below_it_and_what_bars_it_once(report: Report) -> None:
    barred = "not judged: b has not beaten a trigram"
    first = report.claims[0]
    (verdict,) = first.verdicts.values()
    said = replace(verdict, outcome="undecided", notes=(barred, "a seed is missing"))
    out = io.StringIO()
    replace(report, claims=(replace(first, verdicts={"": said}),)).render(Console(file=out, width=110))
    assert out.getvalue().count(barred) == 1 and "\n  a seed is missing\n" in out.getvalue()


def test_a_study_without_a_single_trial_still_has_a_report(tmp_path: Path) -> None:
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss", "val/accuracy@64"])
    store.claims = [{"text": "b is worse", "worse": {"arm": "b", "than": "a", "metric": "val/loss", "margin": 0}}]
    store.write_manifest()
    empty = build(store.study, store.runs)
    assert [verdict.outcome for verdict in empty.verdicts] == ["undecided"]
    assert "16 missing" in (empty.directory / "report.html").read_text()


class TestArmsThatAreEvaluatedOnOtherData:
    CLAIM = ({"text": "other", "worse": {"arm": "b", "than": "a", "metric": "val/loss", "margin": 0.01}},)

    def report(self, place: Path, **evaluation: object) -> Report:
        store = Store(place, {"a": [], "b": [], "c": []}, "a", ["val/loss", "val/loss@8"], range(3))
        for index, arm in enumerate(store.arms):
            for seed in store.seeds:
                loss = 1.0 + seed / 9 + index * (1 + seed / 7) / 20
                metrics = {"val/loss": loss, "val/loss@8": 1 + loss, "val/area": 0.5}
                store.write_trial(arm, seed, metrics, evaluation=evaluation.get(arm, {}))
        store.claims = self.CLAIM
        store.write_manifest()
        return build(store.study, store.runs)

    @staticmethod
    def said(report: Report) -> dict[str, str]:
        """Every output as one line of text."""
        console = Console(file=io.StringIO(), width=300)
        report.render(console)
        assert isinstance(console.file, io.StringIO)
        texts = {"terminal": console.file.getvalue(), "json": json.dumps(report.as_dict())}
        texts |= {name: (report.directory / name).read_text() for name in ("report.html", "table.md")}
        return {name: " ".join(text.split()) for name, text in texts.items()}

    SAME: ClassVar = {"val": {"items": 6, "fingerprint": "00"}, "val@8": {"items": 6, "fingerprint": "08"}}
    OTHER: ClassVar = {"val": {"items": 9, "fingerprint": "11"}, "val@8": {"items": 6, "fingerprint": "08"}}

    def test_are_named_beside_the_verdict_and_in_every_output(self, tmp_path: Path) -> None:
        report = self.report(tmp_path, a=self.SAME, b=self.OTHER, c=self.SAME)
        note = "b and a were not evaluated on the same data: val has 9 items (11) and 6 items (00)"
        assert report.verdicts[0].notes == (note,)
        said = self.said(report)
        for name in ("terminal", "json", "report.html"):
            assert note in said[name], name
            assert name == "terminal" or "fixed, but not all arms have the same" in said[name], name
        caveat = "b was evaluated on other data than a (val): differences in val/loss are of the data too."
        assert all(caveat in text for text in said.values())
        assert not any("c was evaluated" in text for text in said.values())

    def test_say_nothing_where_it_is_the_same(self, tmp_path: Path) -> None:
        report = self.report(tmp_path, a=self.SAME, b=self.SAME, c=self.SAME)
        assert report.verdicts[0].notes == ()
        said = self.said(report)
        assert not any("evaluated on" in text for text in said.values())
        assert "the evaluation set is fixed, the same for all arms" in said["json"]

    def test_cannot_be_told_of_older_trials(self, tmp_path: Path) -> None:
        said = self.said(self.report(tmp_path, a=self.SAME, b=self.OTHER))
        assert "some trials do not say of which data it is" in said["json"]
        assert "b was evaluated on other data than a" in said["table.md"]

    def test_are_told_by_the_sets_that_a_metric_is_of(self) -> None:
        known = {"a": {"val": frozenset({"x"}), "val@8": frozenset({"y"}), "test": frozenset({"t"})}}
        known["b"] = {"val": frozenset({"x"}), "val@8": frozenset({"z"}), "test": frozenset({"u"})}
        values = {("a", name): np.zeros(1) for name in ("val/loss", "val/loss@8", "val/area")}
        evidence = Evidence(("a", "b"), (0,), values, {}, {}, {}, evaluated=known)
        apart = {
            metric: list(evidence.evaluated_apart("a", "b", metric))
            for metric in ("val/loss", "val/loss@8", "val/area", "test/loss", "probe/x")
        }
        assert apart == {
            "val/loss": [], "val/loss@8": ["val@8"], "val/area": ["val@8"], "test/loss": ["test"], "probe/x": ["val@8"],
        }  # fmt: skip


def test_an_impossible_baseline_leaves_differences_out(tmp_path: Path) -> None:
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss"])
    store.manifest = {"impossible": [{"arm": "a", "reason": "no"}]}
    for seed in store.seeds:
        store.write_trial("b", seed, {"val/loss": 1.0 + seed})
    store.write_manifest()
    assert build(store.study, store.runs).rows[0].summaries["val/loss"].comparison is None


def test_names_with_signs_of_markup_reach_the_figures_unharmed(tmp_path: Path) -> None:
    arms = {"a & <b>": [], "$x_1$ | y": [], "ünïcode 位置": []}
    store = Store(tmp_path, arms, "a & <b>", ["val/loss"], seeds=range(3))
    store.fill(dict.fromkeys(arms, 1.5))
    built = build(store.study, store.runs)
    text = "".join(ET.parse(built.directory / "arms_val_loss.svg").getroot().itertext())
    assert all(name in text for name in arms)
    assert "\\$x_1\\$ \\| y" in (built.directory / "table.md").read_text()


def test_twenty_arms_get_a_panel_each_and_distinct_looks(tmp_path: Path) -> None:
    arms = {f"arm_{i}_with_a_rather_long_name": [] for i in range(20)}
    store = Store(tmp_path, arms, next(iter(arms)), ["val/loss"], seeds=range(2))
    store.fill(dict.fromkeys(arms, 1.5))
    built = build(store.study, store.runs)
    root = ET.parse(built.directory / "curve_val_loss.svg").getroot()
    assert sum(str(e.get("id")).startswith("axes_") for e in root.iter()) == 20
    looks = arm_styles(list(arms), next(iter(arms)), ordered=False).values()
    assert len({(look.color, look.marker, look.dash) for look in looks}) == 20

"""What is written for a paper: LaTeX that means the report's numbers, figures with their fonts, a methods paragraph."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from report.store import Store
from swapformer.cli import main
from swapformer.report.build import Report, build
from swapformer.report.number_format import percent
from swapformer.report.page.paper import escaped, methods_text
from swapformer.report.page.wording import contrast_text
from swapformer.study.config.compose import compose

PLAIN = str.maketrans({"$": "", "\\": ""})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two arms and a name that LaTeX would take for commands; one trial diverged."""
    found = Store(
        tmp_path_factory.mktemp("paper"), {"base_1": [], "100% & more": ["model.num_heads=2"]}, "base_1", ["val/loss"],
        seeds=range(5),
        claims=[{"text": "more_ is worse", "worse": {"arm": "100% & more", "than": "base_1", "metric": "val/loss",
                                                     "margin": 0.1}}],
    )  # fmt: skip
    found.write_manifest()
    noise = np.random.default_rng(0).normal(0, 0.01, (2, 5))
    for row, arm in enumerate(found.arms):
        for seed in found.seeds:
            lost = arm != "base_1" and seed == 4
            found.write_trial(
                arm, seed, {} if lost else {"val/loss": 1 + row + float(noise[row, seed])},
                status="diverged" if lost else "finished", history={"val/loss": [(0, 3.0), (2000, 1.0)]},
            )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def report(store: Store) -> Report:
    return build(store.study, store.runs, paper=("latex", "pdf", "png"))


def test_special_letters_are_text() -> None:
    assert escaped(r"a_b & 5 % {x} \n #1 $2 ^ ~") == (
        r"a\_b \& 5 \% \{x\} \textbackslash{}n \#1 \$2 \textasciicircum{} \textasciitilde{}"
    )
    assert escaped("−0.1 Δ ↓ µs\n\n x") == r"$-$0.1 $\Delta$ $\downarrow$ \textmu{}s x"


def test_every_letter_that_a_report_writes_has_a_way_into_latex(report: Report) -> None:
    """What is left beyond ASCII would need fonts that a paper may lack."""
    text = (report.directory / "paper" / "paper.tex").read_text(encoding="utf-8")
    assert [letter for letter in text if ord(letter) > 127] == []


def test_tables_hold_the_reports_numbers(report: Report) -> None:
    tex = (report.directory / "paper" / "paper.tex").read_text(encoding="utf-8")
    assert tex.count(r"\begin{table}") == tex.count(r"\end{table}") == 2 and tex.count(r"\toprule") == 2
    for row in report.rows:
        assert f"{escaped(row.arm)} (baseline) &" in tex if row.is_baseline else f"{escaped(row.arm)} &" in tex
        assert escaped(row.summaries["val/loss"].full_text) in tex
    (verdict,) = report.verdicts
    line = next(line for line in tex.splitlines() if "more\\_ is worse" in line)
    assert escaped(contrast_text(verdict.contrasts[0])) in line
    assert line.startswith({"supported": r"$\checkmark$", "undecided": "?"}[verdict.outcome])
    columns = re.findall(r"\\begin\{tabular\}\{(l+r*)\}", tex)[0]
    heads = tex[tex.index(r"\toprule") : tex.index(r"\midrule")]
    assert heads.count("&") == len(columns) - 1


def test_the_methods_paragraph_says_what_was_done_and_lost(report: Report, store: Store) -> None:
    tex = (report.directory / "paper" / "paper.tex").read_text(encoding="utf-8")
    said = tex[tex.index("How to describe") :]
    assert "We compared 2 arms: the baseline base\\_1, and 100\\% \\& more; each was run with 5 seeds." in said
    assert "1 claims" not in said and "1 claim, with a margin stated beforehand" in said
    assert "Of 10 trials 1 diverged." in said and "at commit 0123456789ab" in said
    page = (report.directory / "report.html").read_text(encoding="utf-8")
    assert "How to describe this in a methods section" in page and "Of 10 trials 1 diverged." in page


def test_the_methods_paragraph_counts_the_arms_that_ran_and_the_error_that_was_spent(report: Report) -> None:
    records = report.records
    manifest = replace(
        records.manifest,
        arms={**records.manifest.arms, "odd": ("model.num_heads=3",)},
        impossible_at={("odd", ""): "heads must divide the width"},
        shared_config=compose(["model.num_layers=1", "task=copy"]),
    )
    said = methods_text(replace(records, manifest=manifest), report.views)
    assert "We compared 2 arms: the baseline base_1, and 100% & more; each was run with 5 seeds." in said
    assert "odd could not be built." in said and " has 1 layer of width " in said
    assert f"the error of {percent(sum(report.errors))} is that of all claims together" in said
    tex = (report.directory / "paper" / "paper.tex").read_text(encoding="utf-8")
    assert rf"at {escaped(percent(sum(report.errors)))} for all claims together" in tex


def test_figures_have_their_fonts_and_their_data_beside(report: Report) -> None:
    paper = report.directory / "paper"
    drawn = {path.stem for path in report.directory.glob("*.svg")}
    assert drawn and {path.stem for path in paper.glob("*.pdf")} == {path.stem for path in paper.glob("*.png")} == drawn
    for path in paper.glob("*.pdf"):
        content = path.read_bytes()
        assert content.startswith(b"%PDF-") and b"/FontFile2" in content and b"/Type3" not in content
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paper.glob("*.png"))
    assert (paper / "arms_val_loss.csv").read_text().startswith("arm")


def test_the_command_writes_what_is_asked_and_the_page_stays_as_it_was(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(store.study, store.runs)
    before = {path.name: path.read_bytes() for path in (store.study / "report").glob("*.*")}
    for path in (store.study / "report" / "paper").glob("*"):
        path.unlink()
    assert main(["report", "99_fake", "--latex", f"runs_dir={store.runs}"]) == 0
    assert [path.name for path in (store.study / "report" / "paper").iterdir()] == ["paper.tex"]
    assert {path.name: path.read_bytes() for path in (store.study / "report").glob("*.*")} == before
    assert main(["report", "99_fake", "99_fake", "--pdf", f"runs_dir={store.runs}"]) == 2
    assert "only one study at a time can be written out" in capsys.readouterr().err


def test_where_there_are_several_conditions_the_model_is_said_to_be_that_of_the_first(report: Report) -> None:
    config = {
        "model": {"topology": {}, "num_layers": 2, "d_model": 64, "num_heads": 4}, "task": {"batch_size": 8},
        "budget": {"steps": 500}, "optim": {"_target_": "torch.optim.AdamW", "lr": 0.001},
    }  # fmt: skip
    known = replace(report.records.manifest, shared_config=config)
    said = [
        methods_text(replace(report.records, manifest=replace(known, conditions=conditions)), report.views)
        for conditions in ({"": {}}, {"short": {}, "long": {}})
    ]
    assert " The baseline has 2 layers" in said[0]
    assert " In the condition short, the baseline has 2 layers" in said[1]

"""`swapformer judge`: verdicts on tables of others, held to scipy's tests, and the guide's examples."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import swapformer as sf
from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.report.page.paper import methods_text
from swapformer.tools.judge import main as judge

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "judge.md"
EXAMPLES = re.findall(
    r"```csv (\S+)\n(.*?)```\n\n```sh\n(.*?)```\n\n```\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL
)
A, B = [2.10, 2.12, 2.08, 2.11, 2.09], [2.05, 2.08, 2.02, 2.07, 2.03]
WIDE = pd.DataFrame({"arm": ["a"] * 5 + ["b"] * 5, "seed": [1, 2, 3, 4, 5] * 2, "loss": A + B, "acc": [0.5, 0.6] * 5})
LONG = WIDE.melt(["arm", "seed"], var_name="metric")


@pytest.mark.parametrize(("name", "table", "command", "output"), EXAMPLES, ids=[each[0] for each in EXAMPLES])
def test_the_guides_examples_say_what_the_guide_says(
    name: str, table: str, command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    Path(name).write_text(table, encoding="utf-8")
    assert main(shlex.split(command)[1:]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "\n".join(lines).strip() == output.strip()


def test_there_are_three_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("paired", [True, False])
def test_a_run_that_is_missing_in_one_condition_takes_nothing_from_the_others(paired: bool) -> None:
    long = LONG[LONG["metric"] == "loss"]
    both = pd.concat([long.assign(size=size) for size in ("s", "m")])
    lacking = both[~((both["size"] == "m") & (both["arm"] == "b") & (both["seed"] == 5))]
    found = [
        {view.condition: view.verdicts[0].contrasts[0] for view in judged.views}
        for judged in (sf.judge(rows, "a", metrics={"loss": ""}, paired=paired) for rows in (both, lacking))
    ]
    assert [each["size=s"].estimate.n for each in found] == [5, 5]
    assert found[0]["size=s"].estimate.limits == found[1]["size=s"].estimate.limits
    assert found[1]["size=m"].estimate.n == 4


@pytest.mark.parametrize("paired", [True, False])
def test_p_values_are_scipys(paired: bool) -> None:
    """Oracle: Student's paired t and Welch's, two-sided, since at a margin of 0 both verdicts share the level."""
    found = sf.judge(WIDE, "a", metrics={"loss": ""}, paired=paired).verdicts[0]
    test = stats.ttest_rel(B, A) if paired else stats.ttest_ind(B, A, equal_var=False)
    assert found.outcome == "supported" and found.p == pytest.approx(test.pvalue, rel=1e-9)


def files(folder: Path) -> dict[str, list[str]]:
    """The same results in every form that is read."""
    comma = {"sep": ";", "decimal": ",", "index": False}
    WIDE.to_csv(folder / "wide.csv", index=False)
    LONG.to_csv(folder / "long.tsv", index=False, sep="\t")
    LONG.to_csv(folder / "comma.csv", **comma)  # type: ignore[call-overload]
    WIDE.to_parquet(folder / "wide.parquet")
    WIDE.to_json(folder / "lines.jsonl", orient="records", lines=True)
    WIDE.to_json(folder / "rows.json", orient="records")
    WIDE.rename(columns={"arm": "method", "seed": "run"}).to_csv(folder / "other.csv", index=False)
    for row in WIDE.to_dict("records"):
        place = folder / "runs" / row["arm"]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"seed{row['seed']}.json").write_text(json.dumps({"eval": {"loss": row["loss"]}}))
    names = ("wide.csv", "long.tsv", "comma.csv", "wide.parquet", "lines.jsonl", "rows.json")
    return {
        **{name: [str(folder / name), "--metric", "loss"] for name in names},
        "columns": [str(folder / "other.csv"), "--metric", "loss", "--columns", "arm=method", "seed=run"],
        "runs": [str(folder / "runs"), "--name", "{arm}/seed{seed}.json", "--metric", "eval.loss=lower"],
    }


def test_every_form_of_a_table_has_the_same_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for name, arguments in files(tmp_path).items():
        assert judge([*arguments, "--baseline", "a", "--paired", "--json"]) == 0
        (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
        found[name] = verdict["outcome"], verdict["p"], verdict["pairs"]
    assert len(found) == 8
    p = pytest.approx(stats.ttest_rel(B, A).pvalue, rel=1e-9)
    assert all(each == ("supported", p, 5) for each in found.values()), found


def test_more_seeds_are_the_next_look_and_the_same_ones_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, asked = tmp_path / "r.csv", ["--baseline", "a", "--metric", "loss", "--paired", "--json"]

    def errors(table: pd.DataFrame, *more: str) -> tuple[list[float], list[str]]:
        table.to_csv(path, index=False)
        assert judge([str(path), *asked, *more]) == 0
        said = [each for each in json.loads(capsys.readouterr().out)["caveats"] if "afresh" in each]
        kept = json.loads(path.with_name("r.csv.judged.json").read_text())
        return [look["error"] for series in kept["ledger"]["series"] for look in series["looks"]], said

    few = WIDE[WIDE["seed"] <= 4]
    assert errors(few) == errors(few) == ([0.04], [])
    assert errors(WIDE)[0] == errors(WIDE.iloc[::-1])[0] == [0.04, 0.005], "whatever the order of the rows"
    changed = WIDE.assign(loss=[*A[:-1], 2.5, *B])
    lost = WIDE.assign(loss=[*A[:-1], np.nan, *B])
    for other in (changed, lost, WIDE.drop(index=9), WIDE[WIDE["seed"] != 5]):
        other.to_csv(path, index=False)
        with pytest.raises(UsageError, match=r"[12] are others than .* holds, or gone; --fresh judges"):
            judge([str(path), *asked])
    looks, said = errors(changed, "--fresh")
    assert looks == [0.04] and "the looks before are left out" in said[0]
    with pytest.raises(UsageError, match="were judged paired before, and must be again"):
        judge([str(path), *[each for each in asked if each != "--paired"]])
    path.with_name("r.csv.judged.json").write_text("{")
    with pytest.raises(UsageError, match="but it is damaged; restore it"):
        judge([str(path), *asked])


def test_a_run_that_diverged_and_was_judged_must_stay_diverged(tmp_path: Path) -> None:
    diverged = WIDE.assign(loss=[*A, *B[:-1], np.inf])
    for _ in range(2):
        sf.judge(diverged, "a", tmp_path / "kept.json", metrics={"loss": ""})
    with pytest.raises(UsageError, match="1 are others than"):
        sf.judge(WIDE, "a", tmp_path / "kept.json", metrics={"loss": ""})


def test_looks_at_several_files_are_kept_whatever_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--baseline", "a", "--metric", "loss", "--json"]
    names = [str(tmp_path / f"{name}.csv") for name in ("base", "new", "also")]

    def looks(*paths: str) -> list[float]:
        assert judge([*paths, *asked]) == 0
        capsys.readouterr()
        (kept,) = tmp_path.glob("*.judged.json")
        return [
            look["error"] for series in json.loads(kept.read_text())["ledger"]["series"] for look in series["looks"]
        ]

    for seeds, wanted in ((4, [0.04]), (5, [0.04, 0.005])):
        for arm, path in zip("ab", names, strict=False):
            WIDE[(WIDE["arm"] == arm) & (WIDE["seed"] <= seeds)].to_csv(path, index=False)
        assert looks(*names[:2]) == looks(*reversed(names[:2])) == wanted
    WIDE[WIDE["arm"] == "b"].assign(arm="c").to_csv(names[2], index=False)
    looks(names[2], *names[:2])
    Path(f"{names[1]}.judged.json").write_text("{}")
    with pytest.raises(UsageError, match=r"must be kept in one file, but .*base.csv.* and .*new.csv.* hold some"):
        judge([*names, *asked])


def test_unpaired_looks_do_not_depend_on_the_order_of_arms(tmp_path: Path) -> None:
    for table in (WIDE, WIDE.iloc[::-1], WIDE):
        sf.judge(table, "a", tmp_path / "kept.json", metrics={"loss": ""})
    (series,) = json.loads((tmp_path / "kept.json").read_text())["ledger"]["series"]
    assert [look["error"] for look in series["looks"]] == [0.04]


def test_a_grid_that_is_judged_again_has_not_had_a_second_look(tmp_path: Path) -> None:
    """Claims stand once in the digest of a look, in however many conditions they are judged."""
    both = pd.concat([LONG.assign(size="s"), LONG.assign(size="l")])
    for _ in range(2):
        found = sf.judge(both, "a", tmp_path / "kept.json", metrics={"loss": ""})
    said = [*found.as_dict()["design"], methods_text(found.records, found.views)]
    assert found.errors == (0.04,) and not any("Judged at" in text or "of the looks" in text for text in said)


def test_a_missing_run_is_missing_and_one_that_diverged_is_not_favoured() -> None:
    short = sf.judge(WIDE.drop(index=9), "a", metrics={"loss": ""})
    assert dict(zip(short.table["arm"], short.table["n"], strict=True)) == {"a": 5, "b": 4}
    lost = sf.judge(WIDE.assign(loss=[*A, *B[:-1], np.nan]), "a", metrics={"loss": ""}, paired=True).verdicts[0]
    assert lost.outcome == "undecided" and "no finite loss with 1 of 5 seeds: not favoured" in lost.notes[0]
    unpaired = sf.judge(WIDE.assign(loss=[*A, *B[:-1], np.nan]), "a", metrics={"loss": ""})
    assert any("no finite loss with 1 of 5 seeds" in note for note in unpaired.verdicts[0].notes), "of its own seeds"
    assert "differences of independent samples (Welch)" in methods_text(unpaired.records, unpaired.views)


def test_conditions_and_claims_are_judged_as_in_a_study(tmp_path: Path) -> None:
    both = pd.concat([LONG.assign(size="s"), LONG.assign(size="l", value=LONG["value"] + 1)])
    assert set(sf.judge(both, "a", metrics={"loss": ""}).table["condition"]) == {"size=s", "size=l"}
    claims = tmp_path / "claims.yaml"
    claims.write_text(
        "baseline: a\nmetrics: {loss: lower, acc: higher}\nranges: {acc: [0, 1]}\nclaims:\n"
        "  - {text: b is as accurate, within: {arm: b, of: a, metric: acc, margin: 0.2}}\n"
        "  - {text: b reaches 2.1, reaches: {arm: b, metric: loss, value: 2.1, above: 0.3}}\n"
    )
    WIDE.to_csv(tmp_path / "r.csv", index=False)
    assert (
        judge([str(tmp_path / "r.csv"), "--claims", str(claims), "--paired", "--html", str(tmp_path / "p.html")]) == 0
    )
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "b reaches 2.1" in page and "<svg" in page


def changed(**more: Any) -> pd.DataFrame:
    return WIDE.drop(columns="acc").assign(**more)


BAD: list[tuple[pd.DataFrame, dict[str, Any], str]] = [
    (WIDE, {"baseline": "c", "metrics": {"loss": ""}}, "must name one of the arms, a and b, but 'c' is none$"),
    (WIDE, {"baseline": "", "metrics": {"loss": ""}}, "but none is named"),
    (WIDE, {}, "--metric must name what is judged, one or several of loss, acc"),
    (LONG, {}, "--metric must name what is judged, one or several of loss, acc"),
    (WIDE, {"metrics": {"los": ""}}, "there is no metric 'los'; did you mean 'loss'"),
    (
        WIDE.rename(columns={"arm": "m"}),
        {},
        "must have a column `arm`, but have m, seed, loss, acc; --columns arm=NAME",
    ),
    (WIDE, {"columns": {"arm": "metod"}}, "there is no column 'metod'"),
    (WIDE, {"columns": {"model": "arm"}}, "columns can be called otherwise that are"),
    (changed(seed=1, arm=list("abcdefghij")), {}, "an arm must have at least 2 seeds, better 5"),
    (changed(loss=["x"] * 10), {}, "a value must be a number, but loss of a with seed 1 is 'x'"),
    (changed(seed=[1] * 10), {}, "each run must have one value of a metric, but a with seed 1 has several of loss"),
    (changed(arm=["a"] * 9 + [""]), {}, "each row must name its arm, but row 10 has none"),
    (changed(arm="a", seed=range(10)), {}, "a must be compared with another arm"),
    (WIDE.rename(columns={"loss": "gap"}), {"metrics": {"gap": ""}}, "the better direction of gap must be said"),
    (WIDE, {"metrics": {"loss": "up"}}, "must be said, not 'up': --metric loss=lower or =higher"),
    (
        LONG.assign(direction=["lower", "higher"] * 10),
        {"metrics": {"loss": ""}},
        "one direction of loss must be better",
    ),
    (
        LONG.assign(size=LONG["arm"] + "1"),
        {"metrics": {"loss": ""}},
        "b has none in any condition of a; name the columns that are conditions by --by, others than size",
    ),
    (WIDE, {"metrics": {"loss": ""}, "claims": [{"text": "t", "better": {"arm": "b"}}]}, "needs `than`|than"),
    (WIDE, {"metrics": {"loss": ""}, "exact": ["los"]}, "`exact` must list metrics .* has 'los'; did you mean 'loss'"),
    (WIDE, {"metrics": {"loss": ""}, "exact": "loss"}, r"`exact` must list metrics .* such as \[loss\], but is"),
]


@pytest.mark.parametrize(("table", "asked", "message"), BAD)
def test_what_is_wrong_is_one_line(table: pd.DataFrame, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        sf.judge(table, **{"baseline": "a", **asked})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.csv", "arm,seed,loss\na,1\n", "line 2 must have 3 cells, but has 2"),
        ("r.csv", "arm,seed,seed\na,1,2\n", "its columns must have different names"),
        ("r.csv", "arm,seed,loss\n", "a row for each run, but .* has no row"),
        ("r.jsonl", '{"arm": "a"\n', "cannot be read as .jsonl"),
        ("r.json", "[1, 2]", "a row must be an object of names and values"),
        ("r.parquet", "no", "cannot be read as .parquet"),
        ("r.txt", "a", "its name must end in one of"),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message) as refused:
        judge([str(tmp_path / name), "--baseline", "a"])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "results must come from FILEs, --wandb FOLDER or --tensorboard FOLDER"),
        (["{r}", "--wandb", "x"], "name one of the three"),
        (["nowhere.csv"], "nowhere.csv does not exist"),
        (["--wandb", "nowhere"], "must be in a folder, but nowhere is no folder"),
        (["{d}"], r"a row for each run, but .*empty has no row; tables are .csv, .* below the names of columns"),
        (["--tensorboard", "{d}"], "empty has no event file of TensorBoard"),
        (["{r}", "--name", "x.csv"], "--name must have names in braces"),
        (["{r}", "--name", "{arm}-{seed}.json"], "the path of each file must end as --name says"),
        (["{r}", "--claims", "{r}"], "must map baseline, metrics, claims, exact, ranges, or some of them"),
    ],
)
def test_wrong_command_lines_are_refused_in_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    path, empty = tmp_path / "r.csv", tmp_path / "empty"
    WIDE.to_csv(path, index=False)
    empty.mkdir()
    with pytest.raises(UsageError, match=message):
        judge([each.replace("{r}", str(path)).replace("{d}", str(empty)) for each in arguments])


@pytest.mark.parametrize(
    "name",
    [
        "neg_mean_squared_error",
        "val/neg_log_loss",
        "minus accuracy",
        "brier_score",
        "1-accuracy",
        "val/1 - f1",
        "-loss",
        "false_match",
    ],
)
def test_the_direction_of_a_negated_metric_must_be_said(name: str) -> None:
    table = WIDE.rename(columns={"loss": name})
    with pytest.raises(UsageError, match=r"the better direction of .* must be said"):
        sf.judge(table, "a", metrics={name: ""})
    assert sf.judge(table, "a", metrics={name: "higher"}).verdicts[0].outcome == "refuted"


def test_one_seed_under_two_labels_is_refused_where_seeds_are_paired() -> None:
    table = pd.concat([WIDE, WIDE[:1].assign(seed="01", loss=9.0)])
    with pytest.raises(UsageError, match="a with seed 1 has several of loss"):
        sf.judge(table, "a", metrics={"loss": ""}, paired=True)


def test_the_methods_paragraph_tells_margins_ranges_shares_and_withdrawn_claims() -> None:
    worse = {"text": "worse", "worse": {"arm": "b", "than": "a", "metric": "loss", "margin": 0.01}}
    share = {"text": "low", "reaches": {"arm": "b", "metric": "loss", "value": 2.05, "share": 0.5}}
    report = sf.judge(WIDE, "a", metrics={"loss": ""}, paired=True, claims=[worse, share])
    said = methods_text(report.records, report.views)
    assert "2 claims, each with a margin or range stated beforehand, were judged by one-sided t limits" in said
    assert "1 of them by exact one-sided binomial limits of shares of seeds" in said
    report = sf.judge(WIDE, "a", metrics={"loss": ""}, paired=True, claims=[share, worse | {"withdrawn": "a slip"}])
    said = methods_text(report.records, report.views)
    assert "1 claim, with a range stated beforehand, was judged by exact one-sided binomial limits" in said
    assert "that of all claims together, 1 withdrawn included (Holm)." in said and "; ." not in said


def test_equal_values_are_told_and_so_is_where_pairing_pays() -> None:
    noise = np.array([0.3, -0.1, 0.2, -0.4, 0.0])
    same = sf.judge(changed(loss=[2.0] * 5 + B), "a").caveats
    assert same[0] == "all 5 seeds of a have the same loss, 2: is the seed set?"
    said = sf.judge(changed(loss=[*(A + noise), *(B + noise)]), "a").caveats[0]
    assert said.startswith("b and a share seeds: paired by them") and said.endswith("mean equal data and weights")


def test_torch_is_not_loaded(tmp_path: Path) -> None:
    WIDE.to_csv(tmp_path / "r.csv", index=False)
    code = (
        "import sys; from swapformer.cli import main; "
        f"main(['judge', {str(tmp_path / 'r.csv')!r}, '--baseline', 'a', '--metric', 'loss']); "
        "sys.exit(bool({'torch', 'hydra', 'lightning', 'wandb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_tensorboards_last_values_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for row in WIDE.to_dict("records"):
        with SummaryWriter(tmp_path / row["arm"] / f"s{row['seed']}") as writer:
            writer.add_scalar("val/loss", 9.0, 1)
            writer.add_scalar("val/loss", row["loss"], 2)
    asked = ["--name", "{arm}/s{seed}", "--baseline", "a", "--metric", "val/loss", "--paired", "--json"]
    assert judge(["--tensorboard", str(tmp_path), *asked]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert verdict["p"] == pytest.approx(stats.ttest_rel(B, A).pvalue, rel=1e-3)


@pytest.mark.evidence
def test_offline_runs_of_wandb_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import wandb

    for row in WIDE.to_dict("records"):
        settings = wandb.Settings(silent=True)
        config = {"seed": row["seed"]}
        run = wandb.init(
            project="p", mode="offline", dir=tmp_path, group=row["arm"], config=config, settings=settings, reinit=True
        )
        run.log({"val": {"loss": 9.0}})
        run.log({"val/loss": row["loss"]})
        run.finish()
    asked = ["--baseline", "a", "--metric", "val/loss", "--paired", "--json"]
    assert judge(["--wandb", str(tmp_path / "wandb"), *asked]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert verdict["p"] == pytest.approx(stats.ttest_rel(B, A).pvalue, rel=1e-9)


def test_a_summary_row_of_a_spreadsheet_is_no_run() -> None:
    """Two rows of means among eight runs made an undecided claim supported."""
    rows = [{"arm": arm, "seed": seed, "loss": 3 - seed / 100} for arm in ("a", "b") for seed in range(4)]
    table = pd.DataFrame([*rows, {"arm": "a", "seed": "Mean", "loss": 2.985}])
    with pytest.raises(UsageError, match="row 9 is a summary of others, 'Mean'; leave it out"):
        sf.judge(table, "a", metrics={"loss": "lower"})


def test_a_column_by_which_runs_fall_into_groups_is_named_where_they_are_averaged_over_it() -> None:
    """Nine small and two large models against two and nine: each is worse at its size, and better on average."""
    rows = [
        {
            "arm": arm,
            "seed": f"r{arm}{size}{number}",
            "size": size,
            "loss": mean + number / 1000,
            "time": 9.5 + number,
        }
        for arm, small in (("a", 9), ("b", 2))
        for size, count, mean in (("S", small, 3.05), ("L", 11 - small, 3.0))
        for number in range(count)
    ]

    def remarks(**asked: Any) -> str:
        return " ".join(sf.judge(pd.DataFrame(rows), "a", metrics={"loss": "lower"}, **asked).caveats)

    assert "runs of an arm differ in size, over which they are averaged; --by size judges each by itself" in remarks()
    assert "averaged" not in remarks(by=["size"]) and "in time" not in remarks()

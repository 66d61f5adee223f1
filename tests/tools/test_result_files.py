"""Results of other tools are read as they were meant, or refused: commas, states, exits, empty cells and names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import swapformer as sf
from swapformer.errors import UsageError
from swapformer.report.external_results import ABSENT, LOST, STEPS, Question, records_of
from swapformer.results.ledger import digest
from swapformer.tools import result_files
from swapformer.tools.judge import main as judge
from swapformer.tools.result_files import file_rows, tensorboard_rows, wandb_rows, with_path

A, B = [2.10, 2.12, 2.08, 2.11, 2.09], [2.05, 2.08, 2.02, 2.07, 2.03]
WIDE = pd.DataFrame({"arm": ["a"] * 5 + ["b"] * 5, "seed": [1, 2, 3, 4, 5] * 2, "loss": A + B})


def speeds(new: str = "1,25") -> str:
    """A table behind tabs whose baseline has 980 to 985 and whose arm has 1,250 to 1,255."""
    rows = [f"base\t{seed}\t98{seed}\nnew\t{seed}\t{new}{seed}\n" for seed in range(6)]
    return "arm\tseed\tspeed\n" + "".join(rows)


def difference(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> float:
    """The judged difference of a table."""
    assert judge([str(path), "--baseline", "base", "--metric", "speed=higher", "--json", *more]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    return float(verdict["differences"][0]["difference"])


@pytest.mark.parametrize("text", [speeds(), speeds().replace("1,250", "1,250.0"), speeds("1,25").replace("98", "98.")])
def test_a_comma_that_may_stand_before_thousands_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.tsv"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"could be a decimal point or stand before thousands.*--commas") as refused:
        judge([str(path), "--baseline", "base", "--metric", "speed=higher"])
    assert "\n" not in str(refused.value)


def test_commas_are_read_as_they_are_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.tsv"
    path.write_text(speeds())
    assert difference(path, capsys, "--commas", "thousands") == pytest.approx(270)
    (tmp_path / "r.tsv.judged.json").unlink()
    assert difference(path, capsys, "--commas", "decimal") == pytest.approx(1.2525 - 982.5)


def test_a_column_of_decimal_commas_needs_no_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, text in enumerate((speeds("2,5").replace("98", "1,"), speeds("0,25").replace("98", "0,12"))):
        path = tmp_path / f"r{number}.tsv"
        path.write_text(text)
        assert difference(path, capsys) > 0


def test_blanks_around_cells_do_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.csv"
    path.write_text("arm, seed, speed\n" + "".join(f"base, {n}, 1.{n} \nnew, {n}, 2.{n}\n" for n in range(5)))
    assert difference(path, capsys) == pytest.approx(1)


@pytest.mark.parametrize("number", ["1_0", "٣.٥", "0x10", "1e", "--1"])
def test_only_plain_numbers_are_numbers(number: str) -> None:
    table = WIDE.astype({"loss": object})
    table.loc[9, "loss"] = number
    with pytest.raises(UsageError, match="a value must be a number"):
        sf.judge(table, "a", metrics={"loss": "lower"})


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
def test_lines_of_json_end_at_newlines_only(sign: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    rows = [{**row, "note": f"x{sign}y"} for row in WIDE.to_dict("records")]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    assert judge([str(path), "--baseline", "a", "--metric", "loss", "--paired", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["outcome"] == "supported"


@pytest.mark.parametrize("empty", [None, "", float("nan")])
def test_a_run_whose_value_is_empty_was_lost_and_its_arm_does_not_win(empty: Any, tmp_path: Path) -> None:
    """pandas writes a diverged run as an empty cell: three of eight seeds would be left out of the mean."""
    table = WIDE.astype({"loss": object})
    table.loc[9, "loss"] = empty
    assert sf.judge(table, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "undecided"
    without = sf.judge(table.drop(index=9), "a", metrics={"loss": ""}, paired=True)
    assert without.verdicts[0].outcome == "supported", "a seed without a row was never started"
    if empty != empty:
        return  # nan was written, so it was measured
    told = sf.judge(table, "a", metrics={"loss": ""}, paired=True, empty="unstarted")
    assert told.verdicts[0].outcome == "supported"
    with pytest.raises(UsageError, match="must be one of lost, unstarted"):
        sf.judge(table, "a", metrics={"loss": ""}, empty="gone")


def test_a_column_that_other_files_have_is_not_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of a second metric in a file of their own did not lose the first."""
    WIDE.to_csv(tmp_path / "loss.csv", index=False)
    WIDE.rename(columns={"loss": "acc"}).assign(seed=WIDE["seed"] + 10).to_csv(tmp_path / "acc.csv", index=False)
    files = [str(tmp_path / name) for name in ("loss.csv", "acc.csv")]
    assert judge([*files, "--baseline", "a", "--metric", "loss", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["outcome"] == "supported"


@pytest.mark.parametrize("state", ["crashed", "failed", "killed", "Running"])
def test_a_row_whose_state_says_so_was_lost(state: str) -> None:
    table = WIDE.assign(State=["finished"] * 9 + [state])
    report = sf.judge(table, "a", metrics={"loss": ""}, paired=True)
    assert report.verdicts[0].outcome == "undecided"
    assert any(f"b with seed 5 (its State is {state.lower()})" in each for each in report.caveats)
    long = table.melt(["arm", "seed", "State"], ["loss"], "metric")
    assert sf.judge(long, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "undecided"


@pytest.mark.parametrize("name", ["drop_in_accuracy", "missed_f1", "no_match", "without acc", "accuracy_loss", "top_5"])
def test_a_direction_is_taken_only_from_names_all_of_whose_words_are_known(name: str) -> None:
    with pytest.raises(UsageError, match=r"the better direction of .* must be said"):
        sf.judge(WIDE.rename(columns={"loss": name}), "a", metrics={name: ""})


@pytest.mark.parametrize("name", ["val/loss", "test_loss", "val/bits_per_byte", "cross_entropy_loss", "val/loss@64"])
def test_a_direction_is_taken_from_names_that_are_known(name: str) -> None:
    found = sf.judge(WIDE.rename(columns={"loss": name}), "a", metrics={name: ""}, paired=True)
    assert found.verdicts[0].outcome == "supported"


def test_what_contradicts_itself_is_refused(tmp_path: Path) -> None:
    path, claims = tmp_path / "r.csv", tmp_path / "c.yaml"
    WIDE.to_csv(path, index=False)
    claims.write_text("claims: [{text: t, better: {arm: b, than: a, metric: loss, margin: 0}}]\n")
    for arguments, message in (
        (["--metric", "loss=lower", "--metric", "loss=higher"], "one direction of loss must be better, but both lower"),
        (["--claims", str(claims), "--margin", "0.5"], "has a margin of its own, so --margin says nothing"),
    ):
        with pytest.raises(UsageError, match=message):
            judge([str(path), "--baseline", "a", *arguments])


def test_a_page_does_not_replace_a_file_that_is_no_page(tmp_path: Path) -> None:
    path, page = tmp_path / "r.csv", tmp_path / "page.html"
    WIDE.to_csv(path, index=False)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="--html must name a new file or an earlier page"):
        judge([str(path), "--baseline", "a", "--metric", "loss", "--html", str(path)])
    assert path.read_bytes() == before
    for _ in range(2):
        assert judge([str(path), "--baseline", "a", "--metric", "loss", "--html", str(page)]) == 0


def looks(path: Path) -> list[float]:
    """The errors of the looks that a file keeps."""
    kept = json.loads(path.read_text())
    return [look["error"] for series in kept["ledger"]["series"] for look in series["looks"]]


def test_looks_are_found_by_the_runs_and_not_by_the_name_of_their_table(tmp_path: Path) -> None:
    asked = ["--baseline", "a", "--metric", "loss", "--paired"]
    WIDE[WIDE["seed"] <= 4].to_csv(tmp_path / "one.csv", index=False)
    WIDE.to_csv(tmp_path / "two.csv", index=False)
    for name in ("one.csv", "two.csv"):
        assert judge([str(tmp_path / name), *asked]) == 0
    assert looks(tmp_path / "one.csv.judged.json") == [0.04, 0.005]
    assert not (tmp_path / "two.csv.judged.json").exists()


def test_a_run_that_is_equal_by_chance_or_a_shared_baseline_is_another_question(tmp_path: Path) -> None:
    asked = ["--baseline", "a", "--metric", "loss", "--paired"]
    WIDE.to_csv(tmp_path / "one.csv", index=False)
    other = WIDE.assign(loss=[*A, B[0], *(1.0 + value for value in B[1:])])
    other.to_csv(tmp_path / "two.csv", index=False)
    for name in ("one.csv", "two.csv"):
        assert judge([str(tmp_path / name), *asked]) == 0
        assert looks(tmp_path / f"{name}.judged.json") == [0.04]


@pytest.mark.parametrize("text", ["[" * 100_000, "[1, 2]", '{"values": [], "ledger": 1, "paired": true}', "{"])
def test_a_damaged_file_of_looks_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    WIDE.to_csv(path, index=False)
    (tmp_path / "r.csv.judged.json").write_text(text)
    with pytest.raises(UsageError, match="must hold the looks at these results, but it is damaged; restore") as refused:
        judge([str(path), "--baseline", "a", "--metric", "loss"])
    assert "\n" not in str(refused.value)


class TestRunsOfWandb:
    """What `wandb` says of the files of offline runs, without the second that it takes to write one."""

    @staticmethod
    def run(
        arm: str, seed: int, values: Sequence[float], exit_code: int | None = 0, start: int = 0, note: str = ""
    ) -> list[dict[str, Any]]:
        """The entries of a run, or of a part of one."""
        config = {"update": {"seed": seed, "note": note}}
        began = f"2026-01-01T00:{start:02d}:00Z"
        found: list[dict[str, Any]] = [
            {"type": "run", "run": {"run_id": f"{arm}{seed}", "job_type": arm, "config": config, "start_time": began}}
        ]
        for step, value in enumerate(values, start):
            found.append({"type": "history", "history": {"item": {"_step": step, "val/loss": value}}})
        if exit_code is not None:
            found.append({"type": "exit", "exit": {"exit_code": exit_code} if exit_code else {}})
        return found

    @staticmethod
    def write(folder: Path, monkeypatch: pytest.MonkeyPatch, runs: Sequence[list[dict[str, Any]]]) -> Path:
        """A folder of runs, their entries as `wandb` would list them."""
        folder.mkdir(exist_ok=True)
        known = {}
        for number, entries in enumerate(runs):
            known[folder / f"{number:03d}.wandb"] = entries
            (folder / f"{number:03d}.wandb").touch()
        monkeypatch.setattr(result_files, "_wandb_entries", lambda path: known[path])
        return folder

    def test_a_run_that_crashed_is_lost_and_not_averaged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """All runs of the baseline end two steps early with exit status 1; alike otherwise, it would seem worse."""
        curve = [5 - 3 * step / 20 for step in range(1, 21)]
        runs = [
            self.run(arm, seed, [value + seed / 100 for value in curve[:n]], exit_code=int(n < 20))
            for arm, n in (("base", 18), ("new", 20))
            for seed in range(4)
        ]
        folder = self.write(tmp_path / "w", monkeypatch, runs)
        asked = ["--wandb", str(folder), "--baseline", "base", "--metric", "val/loss", "--json"]
        assert judge(asked) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["verdicts"][0]["outcome"] == "undecided"
        assert any("base with seed 0 (its exit status is 1)" in each for each in found["caveats"])

    def test_a_run_without_an_exit_status_is_lost(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = self.write(tmp_path / "w", monkeypatch, [self.run("a", 1, [2.0], None), self.run("a", 2, [2.0])])
        lost = [row[result_files.LOST] for row in wandb_rows(folder)]
        assert lost == ["it has no exit status, so it was killed or still runs", ""]

    def test_a_run_that_was_resumed_into_another_folder_is_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parts = [self.run("a", 1, [1.5, 1.0], start=10), self.run("a", 1, [3.0, 2.0], None)]
        (row,) = wandb_rows(self.write(tmp_path / "w", monkeypatch, parts))
        assert row["val/loss"] == 1.0 and row[result_files.STEPS] == 11 and row[result_files.LOST] == ""

    def test_whole_arms_that_end_at_different_steps_are_told_in_the_verdicts_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        runs = [
            self.run(arm, seed, [mean + seed / 100] * n)
            for arm, n, mean in (("base", 18, 3.0), ("new", 20, 2.0))
            for seed in range(4)
        ]
        folder = self.write(tmp_path / "w", monkeypatch, runs)
        assert judge(["--wandb", str(folder), "--baseline", "base", "--metric", "val/loss"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "✓ new is better" in said and "the arms end at different steps (new at 19 and base at 17)" in said


def test_a_line_of_a_wandb_file_may_hold_any_sign(tmp_path: Path) -> None:
    """U+0085 in a note of the configuration, in a real offline run."""
    import wandb

    settings = wandb.Settings(silent=True)
    run = wandb.init(
        project="p", mode="offline", dir=tmp_path, job_type="a", config={"seed": 1, "note": "x\x85y"},
        settings=settings, reinit="finish_previous",
    )  # fmt: skip
    run.log({"val/loss": 2.0}, step=3)
    run.finish(exit_code=1)
    (row,) = wandb_rows(tmp_path)
    assert row["note"] == "x\x85y" and row["val/loss"] == 2.0
    assert (row[result_files.LOST], row[result_files.STEPS]) == ("its exit status is 1", 3)


def test_runs_of_tensorboard_that_stop_before_the_others_of_their_arm_are_lost(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for arm, seed, steps in (("a", 1, 4), ("a", 2, 4), ("a", 3, 2), ("b", 1, 9)):
        with SummaryWriter(tmp_path / arm / f"s{seed}") as writer:
            for step in range(steps):
                writer.add_scalar("val/loss", 3.0 - step / 10, step)
                writer.add_scalar("train/loss", 1.0, 20)  # what is judged has a last step of its own
    rows = list(with_path(tensorboard_rows(tmp_path), "{arm}/s{seed}"))
    assert [(row[result_files.STEPS]["val/loss"], row[result_files.LOST]) for row in rows] == [
        (3, None),
        (3, None),
        (1, None),
        (8, None),
    ]
    assert np.isclose(rows[3]["val/loss"], 2.2)


def stopped(rows: list[dict[str, Any]], *more: str) -> list[str]:
    """The runs that a table of TensorBoard's form has lost."""
    asked = Question(baseline="a", metrics={"val/loss": ""}, by=more, empty="lost")
    remarks = records_of(pd.DataFrame(rows), asked).remarks
    return [each for each in remarks if each.startswith("lost: ")]


class TestRunsThatStopBeforeOthers:
    """Event files do not say how a run ended."""

    @staticmethod
    def rows(**last: Any) -> list[dict[str, Any]]:
        return [
            {
                "arm": arm, "seed": seed, "val/loss": 2.0 + seed / 10, result_files.LOST: None,
                result_files.STEPS: {"val/loss": last.get(f"{arm}{seed}", 20), "train/loss": 20},
            }
            for arm in "ab"
            for seed in (1, 2, 3)
        ]  # fmt: skip

    def test_it_is_the_judged_metrics_own_last_step(self) -> None:
        assert stopped(self.rows()) == []
        (said,) = stopped(self.rows(b2=18))
        assert "b with seed 2 (it stops at step 18, others of its arm at 20)" in said

    def test_a_whole_arm_may_end_earlier(self) -> None:
        assert stopped(self.rows(b1=10, b2=10, b3=10)) == []

    def test_others_are_those_of_the_same_condition(self) -> None:
        small = [{**row, "size": "s"} for row in self.rows()]
        large = [{**row, "size": "m", result_files.STEPS: {"val/loss": 40}} for row in self.rows()]
        assert stopped([*small, *large], "size") == []

    def test_a_run_without_the_metric_is_lost_and_not_one_that_never_started(self) -> None:
        rows = self.rows()
        rows[4] |= {"val/loss": ABSENT, result_files.STEPS: {"train/loss": 3}}
        (said,) = stopped(rows)
        assert "b with seed 2 (it has no val/loss, others of its arm have)" in said

    def test_the_arm_may_be_called_otherwise(self) -> None:
        rows = [{"method" if name == "arm" else name: value for name, value in row.items()} for row in self.rows(b3=3)]
        asked = Question(baseline="a", metrics={"val/loss": ""}, columns={"arm": "method"})
        assert any(
            "b with seed 3 (it stops at step 3" in each for each in records_of(pd.DataFrame(rows), asked).remarks
        )


class TestWhatHuntersFound:
    """Runs that were lost without a word, and options that forgot others."""

    def test_a_state_that_nobody_knows_is_asked_for_and_missing_ones_hide_no_crash(self) -> None:
        odd = WIDE.assign(state=["finished"] * 8 + ["meditating", "crashed"])
        with pytest.raises(UsageError, match="must be known, such as finished or crashed, but one has 'meditating'"):
            sf.judge(odd, "a", metrics={"loss": ""}, paired=True)
        some = WIDE.assign(state=[None] * 9 + ["crashed"])
        assert sf.judge(some, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "undecided"
        slurm = WIDE.assign(state=["completed"] * 9 + ["TIMEOUT"])
        assert sf.judge(slurm, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "undecided"

    def test_a_run_is_lost_if_any_source_says_so(self) -> None:
        table = WIDE.assign(state=["finished"] * 9 + ["crashed"], status="done")
        assert sf.judge(table, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "undecided"

    def test_a_run_that_crashed_before_its_first_evaluation_is_lost(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = [{**row, "state": "finished"} for row in WIDE.to_dict("records")[:-1]]
        rows.append({"arm": "b", "seed": 5, "state": "crashed"})
        (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for more in ([], ["--empty", "unstarted", "--fresh"]):
            asked = [str(tmp_path / "r.jsonl"), "--baseline", "a", "--metric", "loss", "--paired", "--json", *more]
            assert judge(asked) == 0
            assert json.loads(capsys.readouterr().out)["verdicts"][0]["outcome"] == "undecided"

    def test_a_judged_run_cannot_leave_one_of_several_conditions(self, tmp_path: Path) -> None:
        both = pd.concat([WIDE.assign(size=size) for size in ("s", "m")])
        sf.judge(both, "a", tmp_path / "kept.json", metrics={"loss": ""}, by=["size"], paired=True)
        fewer = both[~((both["size"] == "s") & (both["arm"] == "b") & (both["seed"] == 5))]
        with pytest.raises(UsageError, match=r"1 are others than .* holds, or gone"):
            sf.judge(fewer, "a", tmp_path / "kept.json", metrics={"loss": ""}, by=["size"], paired=True)

    def test_runs_of_two_projects_are_not_parts_of_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = [TestRunsOfWandb.run("a", 1, [2.0]), TestRunsOfWandb.run("a", 1, [3.0])]
        for entries, project in zip(runs, ("one", "two"), strict=True):
            entries[0]["run"]["project"] = project
        folder = TestRunsOfWandb.write(tmp_path / "w", monkeypatch, runs)
        assert [row["val/loss"] for row in wandb_rows(folder)] == [2.0, 3.0]

    def test_options_that_are_given_twice_add_up(self) -> None:
        from swapformer.tools.judge import parser

        found = parser().parse_args(
            ["r.csv", "--by", "size", "--by", "steps", "--columns", "arm=m", "--columns", "seed=s"]
        )
        assert found.by == ["size", "steps"] and found.columns == ["arm=m", "seed=s"]

    def test_files_are_tables_whatever_the_case_of_their_names(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        WIDE[WIDE["arm"] == "a"].to_csv(tmp_path / "a_judged.jsonl.CSV", index=False)
        WIDE[WIDE["arm"] == "b"].to_csv(tmp_path / "b.csv", index=False)
        assert judge([str(tmp_path), "--baseline", "a", "--metric", "loss", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["verdicts"][0]["outcome"] == "supported"


class TestNamesOfFiles:
    """What `--name` reads in a path."""

    @staticmethod
    def read(path: str, pattern: str, **row: Any) -> dict[str, Any]:
        (found,) = with_path([(Path(path), row)], pattern)
        return found

    def test_a_seed_is_the_digits(self) -> None:
        assert self.read("out/pre_norm_3.json", "{arm}_{seed}.json") == {"arm": "pre_norm", "seed": "3"}
        assert self.read("a/seed03/m.json", "{arm}/seed{seed}/m.json") == {"arm": "a", "seed": "03"}
        assert self.read("a/first.json", "{arm}/{seed}.json") == {"arm": "a", "seed": "first"}

    @pytest.mark.parametrize(
        ("path", "pattern"), [("arm10.json", "{arm}{seed}.json"), ("a_b_c.json", "{arm}_{size}.json")]
    )
    def test_a_path_that_can_be_read_in_two_ways_is_refused(self, path: str, pattern: str) -> None:
        with pytest.raises(UsageError, match=r"--name must say one thing of a path, but .* or as arm"):
            self.read(path, pattern)

    def test_a_row_that_says_otherwise_is_refused(self) -> None:
        assert self.read("a/1.json", "{arm}/{seed}.json", seed=1) == {"arm": "a", "seed": "1"}
        with pytest.raises(UsageError, match=r"must not say otherwise than its path, but a/1.json is of seed '1', and"):
            self.read("a/1.json", "{arm}/{seed}.json", seed=2)


class TestTablesOfSeveralFiles:
    """What holds of all files together."""

    def test_commas_are_unclear_where_another_file_makes_them_so(self, tmp_path: Path) -> None:
        (tmp_path / "a.tsv").write_text("arm\tseed\tspeed\nbase\t1\t980\nbase\t2\t981\n")
        (tmp_path / "b.tsv").write_text("arm\tseed\tspeed\nnew\t1\t1,250\nnew\t2\t1,251\n")
        with pytest.raises(UsageError, match=r"a comma in speed could be .* both '1,250' and '980'"):
            list(file_rows([tmp_path]))
        said = [row["speed"] for _, row in file_rows([tmp_path], "thousands")]
        assert said == ["980", "981", "1250", "1251"]

    def test_points_beside_commas_are_unclear(self, tmp_path: Path) -> None:
        (tmp_path / "a.tsv").write_text("arm\tspeed\na\t0,98\nb\t1.25\n")
        with pytest.raises(UsageError, match=r"a comma in speed could be .* both '0,98' and '1.25'"):
            list(file_rows([tmp_path / "a.tsv"]))

    def test_a_number_with_both_signs_is_read_as_said(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text('arm,speed\na,"1,250.5"\nb,"12,345,678"\n')
        assert [row["speed"] for _, row in file_rows([tmp_path / "a.csv"], "thousands")] == ["1250.5", "12345678"]

    def test_linked_folders_are_read_and_circles_end(self, tmp_path: Path) -> None:
        (tmp_path / "far").mkdir()
        WIDE.to_csv(tmp_path / "far" / "r.csv", index=False)
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "link").symlink_to(tmp_path / "far", target_is_directory=True)
        (tmp_path / "here" / "circle").symlink_to(tmp_path / "here", target_is_directory=True)
        (tmp_path / "far" / "back").symlink_to(tmp_path / "here", target_is_directory=True)
        assert len(list(file_rows([tmp_path / "here"]))) == len(WIDE)

    def test_a_run_that_two_arms_share_by_a_link_belongs_to_both(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        (tmp_path / "a" / "1.json").write_text('{"loss": 2}')
        (tmp_path / "b" / "1.json").symlink_to(tmp_path / "a" / "1.json")
        (tmp_path / "c").symlink_to(tmp_path / "a", target_is_directory=True)
        rows = with_path(file_rows([tmp_path]), "{arm}/{seed}.json")
        assert [row["arm"] for row in rows] == ["a", "b", "c"]

    @pytest.mark.parametrize("other", ["a.csv", "a.jsonl"])
    def test_commas_are_unclear_beside_files_of_another_kind(self, other: str, tmp_path: Path) -> None:
        text = "arm,speed\nbase,980\n" if other == "a.csv" else '{"arm": "base", "speed": 980}\n'
        (tmp_path / other).write_text(text)
        (tmp_path / "b.tsv").write_text("arm\tspeed\nnew\t1,250\nnew\t1,251\n")
        with pytest.raises(UsageError, match=r"a comma in speed could be .* both '1,250' and '980'"):
            list(file_rows([tmp_path]))

    def test_names_that_stand_twice_in_a_row_of_json_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        for text, said in (
            ('{"arm": "a", "loss": 1, "loss": 2}', "one has 'loss' twice"),
            ('{"arm": "a", "val.loss": 1, "val": {"loss": 2}}', "one has 'val.loss' nested and with a point"),
        ):
            path.write_text(text + "\n")
            with pytest.raises(UsageError, match=said):
                list(file_rows([path]))


class TestOddTables:
    """Tables that other programs write, each one clear line or a right answer."""

    def test_seeds_that_pandas_wrote_as_floats_are_the_same_seeds(self) -> None:
        table = WIDE.astype({"seed": object})
        table["seed"] = [
            str(seed) if arm == "a" else f"{seed}.0" for arm, seed in zip(WIDE["arm"], WIDE["seed"], strict=True)
        ]
        assert sf.judge(table, "a", metrics={"loss": ""}, paired=True).verdicts[0].pairs == 5

    def test_names_that_end_like_whole_numbers_stay_apart(self) -> None:
        arms = ["v1"] * 4 + ["v2"] * 3 + ["v2.0"] * 3
        table = WIDE.assign(arm=arms, seed=range(10)).rename(columns={"loss": "loss@1.0"})
        assert len(sf.judge(table, "v2.0", metrics={"loss@1.0": "lower"}).verdicts) == 2

    def test_a_page_that_is_a_folder_is_refused_in_one_line(self, tmp_path: Path) -> None:
        WIDE.to_csv(tmp_path / "r.csv", index=False)
        with pytest.raises(UsageError, match=r"--html must name a file, but .* is a folder"):
            judge([str(tmp_path / "r.csv"), "--baseline", "a", "--metric", "loss", "--html", str(tmp_path)])

    def test_an_arm_without_the_judged_metric_is_one_line(self) -> None:
        long = WIDE.melt(["arm", "seed"], ["loss"], "metric")
        long.loc[long["arm"] == "b", "metric"] = "Loss"
        with pytest.raises(UsageError, match="each arm must have a value of what is judged, but b has none of loss"):
            sf.judge(long, "a", metrics={"loss": ""})

    def test_a_condition_may_be_empty(self) -> None:
        long = WIDE.melt(["arm", "seed"], var_name="metric")
        both = pd.concat([long.assign(schedule=None), long.assign(schedule="cosine")])
        assert {view.condition for view in sf.judge(both, "a", metrics={"loss": ""}).views} == {
            "schedule=",
            "schedule=cosine",
        }

    def test_metrics_may_be_called_value_and_metric(self) -> None:
        for name in ("value", "metric"):
            table = WIDE.rename(columns={"loss": name})
            assert sf.judge(table, "a", metrics={name: "lower"}, paired=True).verdicts[0].outcome == "supported"

    @pytest.mark.parametrize("value", [True, 10**400, [1, 2], "1" + "0" * 400])
    def test_what_is_no_number_is_one_line(self, value: Any) -> None:
        table = WIDE.astype({"loss": object})
        table.at[9, "loss"] = value
        with pytest.raises(UsageError, match="a value must be a number, but loss of b with seed 5 is") as refused:
            sf.judge(table, "a", metrics={"loss": ""})
        assert "\n" not in str(refused.value)

    def test_cells_may_hold_lists(self) -> None:
        long = WIDE.melt(["arm", "seed"], var_name="metric")
        long["tags"] = [["x"]] * len(long)
        assert sf.judge(long, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "supported"

    @pytest.mark.parametrize("text", ["metrics: [[loss]]\n", "claims: 3\n", "[]\n", "metric: loss\n"])
    def test_a_file_of_claims_is_read_or_refused_in_one_line(self, text: str, tmp_path: Path) -> None:
        WIDE.to_csv(tmp_path / "r.csv", index=False)
        (tmp_path / "c.yaml").write_text(text)
        with pytest.raises(UsageError, match="must map baseline, metrics, claims"):
            judge([str(tmp_path / "r.csv"), "--claims", str(tmp_path / "c.yaml"), "--baseline", "a"])

    def test_an_empty_key_of_a_file_of_claims_says_nothing(self, tmp_path: Path) -> None:
        WIDE.to_csv(tmp_path / "r.csv", index=False)
        (tmp_path / "c.yaml").write_text("baseline: a\nmetrics: [loss]\nclaims:\n")
        assert judge([str(tmp_path / "r.csv"), "--claims", str(tmp_path / "c.yaml")]) == 0


class TestWhereLooksAreKept:
    """Looks at the same runs are found, and what cannot be read is told."""

    ASKED = ("--baseline", "a", "--metric", "loss", "--paired")

    def test_a_folder_and_its_files_have_one_ledger(self, tmp_path: Path) -> None:
        for arm in "ab":
            (tmp_path / "runs" / arm).mkdir(parents=True)
            WIDE[WIDE["arm"] == arm].to_csv(tmp_path / "runs" / arm / "r.csv", index=False)
        files = [str(tmp_path / "runs" / arm / "r.csv") for arm in "ab"]
        judge([str(tmp_path / "runs"), *self.ASKED])
        judge([*files, *self.ASKED])
        assert [path.name for path in tmp_path.rglob("*judged.json")] == ["judged.json"]
        (tmp_path / "runs" / "judged.json").unlink()
        judge([*files, *self.ASKED])
        (kept,) = (tmp_path / "runs").glob("r+1.*.judged.json")
        judge([str(tmp_path / "runs"), *self.ASKED])
        assert [path.name for path in tmp_path.rglob("*judged.json")] == [kept.name]

    def test_fresh_says_so_under_another_name_too(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for name in ("one.csv", "two.csv"):
            WIDE.to_csv(tmp_path / name, index=False)
        judge([str(tmp_path / "one.csv"), *self.ASKED])
        judge([str(tmp_path / "two.csv"), *self.ASKED, "--fresh"])
        assert "judged afresh" in " ".join(capsys.readouterr().out.split())

    def test_a_damaged_file_beside_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        WIDE.to_csv(tmp_path / "one.csv", index=False)
        (tmp_path / "other.csv.judged.json").write_text("{")
        judge(["one.csv", *self.ASKED])
        assert "other.csv.judged.json cannot be read: looks at these results may be missing" in " ".join(
            capsys.readouterr().out.split()
        )

    def test_a_judged_run_cannot_get_another_judged_metric(self, tmp_path: Path) -> None:
        kept = tmp_path / "kept.json"
        both = WIDE.assign(acc=[0.5 + n / 100 for n in range(10)]).astype({"acc": object})
        some = both.copy()
        some["acc"] = [ABSENT if n in (4, 9) else value for n, value in enumerate(both["acc"])]
        asked = {"metrics": {"loss": "", "acc": ""}, "paired": True, "empty": "unstarted"}
        sf.judge(some, "a", kept, **asked)
        with pytest.raises(UsageError, match="must stay as they were, but 2 had no acc when it was judged"):
            sf.judge(both, "a", kept, **asked)

    def test_a_metric_that_was_not_judged_may_be_judged_later(self, tmp_path: Path) -> None:
        both = WIDE.assign(acc=[0.5 + n / 100 for n in range(10)])
        for metrics in ({"loss": ""}, {"loss": "", "acc": ""}):
            sf.judge(both, "a", tmp_path / "kept.json", metrics=metrics, paired=True)
        assert len(looks(tmp_path / "kept.json")) == 2

    def test_looks_remember_the_runs_of_tables_before(self, tmp_path: Path) -> None:
        """Runs that a look at another metric added may be judged; a value of one that was judged cannot change."""
        kept, more = tmp_path / "kept.json", WIDE.assign(acc=0.5 + WIDE["loss"] / 10)
        sf.judge(WIDE, "a", kept, metrics={"loss": ""}, paired=True)
        extra = pd.DataFrame(
            {"arm": ["a", "b"] * 2, "seed": [6, 6, 7, 7], "loss": [2.1, 2.0, 2.2, 2.1], "acc": [0.1, 0.2] * 2}
        )
        sf.judge(pd.concat([more, extra]), "a", kept, metrics={"acc": "higher"}, paired=True)
        assert {name for row in json.loads(kept.read_text())["values"].values() for name in row} == {"loss", "acc"}
        changed = more.assign(loss=more["loss"] + 1)
        with pytest.raises(UsageError, match=r"10 are others than .* holds"):
            sf.judge(pd.concat([changed, extra]), "a", kept, metrics={"loss": ""}, paired=True)
        sf.judge(pd.concat([more, extra]), "a", kept, metrics={"loss": ""}, paired=True)
        assert len(looks(kept)) == 3

    def test_a_table_with_a_file_of_its_own_that_has_grown_by_judged_runs_is_refused(self, tmp_path: Path) -> None:
        """Else the looks at the others would be forgotten."""
        more = WIDE.assign(seed=WIDE["seed"] + 10, loss=WIDE["loss"] + 0.01)
        WIDE.to_csv(tmp_path / "one.csv", index=False)
        more.to_csv(tmp_path / "two.csv", index=False)
        for name in ("one.csv", "two.csv"):
            assert judge([str(tmp_path / name), *self.ASKED]) == 0
        pd.concat([WIDE, more]).to_csv(tmp_path / "two.csv", index=False)
        with pytest.raises(
            UsageError, match=r"must be kept in one file, but .*two.csv.judged.json and .*one.csv.judged"
        ):
            judge([str(tmp_path / "two.csv"), *self.ASKED])
        assert judge([str(tmp_path / "two.csv"), *self.ASKED, "--fresh"]) == 0
        assert judge([str(tmp_path / "two.csv"), *self.ASKED]) == 0, "those are known to be left out"

    def test_looks_are_found_from_another_folder_by_relative_paths_and_behind_links(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for arm in "ab":
            (tmp_path / "all" / arm).mkdir(parents=True)
            WIDE[WIDE["arm"] == arm].to_csv(tmp_path / "all" / arm / "r.csv", index=False)
        judge([str(tmp_path / "all"), *self.ASKED])
        monkeypatch.chdir(tmp_path / "all" / "a")
        judge(["r.csv", "../b/r.csv", *self.ASKED])
        assert [path.name for path in tmp_path.rglob("*judged.json")] == ["judged.json"]
        (tmp_path / "all" / "judged.json").unlink()
        judge(["r.csv", "../b/r.csv", *self.ASKED])
        (tmp_path / "linked").mkdir()
        (tmp_path / "linked" / "all").symlink_to(tmp_path / "all")
        judge([str(tmp_path / "linked"), *self.ASKED])
        assert len(list(tmp_path.rglob("*judged.json"))) == 1

    def test_looks_at_files_of_two_folders_are_found_from_one_of_them(self, tmp_path: Path) -> None:
        for name in "xy":
            (tmp_path / name).mkdir()
        WIDE.to_csv(tmp_path / "y" / "b.csv", index=False)
        WIDE.assign(seed=WIDE["seed"] + 10).to_csv(tmp_path / "x" / "a.csv", index=False)
        judge([str(tmp_path / "x" / "a.csv"), str(tmp_path / "y" / "b.csv"), *self.ASKED])
        (kept,) = tmp_path.glob("*judged.json")
        with pytest.raises(UsageError, match=f"10 are others than .*{re.escape(kept.name)} holds, or gone"):
            judge([str(tmp_path / "x" / "a.csv"), *self.ASKED])

    def test_runs_are_known_by_another_metric_a_new_condition_and_as_pairs(self, tmp_path: Path) -> None:
        both = WIDE.assign(acc=[0.5 + n / 100 for n in range(10)], epochs=10)
        both.to_csv(tmp_path / "one.csv", index=False)
        assert judge([str(tmp_path / "one.csv"), *self.ASKED]) == 0
        both.to_csv(tmp_path / "two.csv", index=False)
        assert judge([str(tmp_path / "two.csv"), "--baseline", "a", "--metric", "acc", "--paired"]) == 0
        assert not (tmp_path / "two.csv.judged.json").exists(), "acc was there when loss was judged"
        other = both.assign(acc=both["acc"] ** 2, loss=both["loss"] ** 2)
        other.to_csv(tmp_path / "three.csv", index=False)
        assert judge([str(tmp_path / "three.csv"), *self.ASKED]) == 0
        assert (tmp_path / "three.csv.judged.json").exists(), "equal settings are no equal runs"
        long = both.melt(["arm", "seed"], ["loss"], "metric")
        later = pd.concat([long.assign(data="wiki"), long.assign(data="code", value=long["value"] * 1.3)])
        later.to_csv(tmp_path / "four.csv", index=False)
        assert judge([str(tmp_path / "four.csv"), *self.ASKED]) == 0
        assert not (tmp_path / "four.csv.judged.json").exists(), "the same runs, and now a condition"

    def test_zeros_before_a_seed_are_no_other_run_when_it_is_judged_paired(self, tmp_path: Path) -> None:
        kept = tmp_path / "kept.json"
        table = WIDE.assign(seed=[f"0{seed}" for seed in WIDE["seed"]])
        sf.judge(table, "a", kept, metrics={"loss": ""})
        with pytest.raises(UsageError, match="were judged unpaired before"):
            sf.judge(table, "a", kept, metrics={"loss": ""}, paired=True)
        values = json.loads(kept.read_text())["values"]
        assert set(values) == {digest([arm, str(seed)]) for arm in "ab" for seed in range(1, 6)}

    def test_two_runs_do_not_get_one_id(self) -> None:
        """Both have the values that one run had when the table knew no condition."""
        long = WIDE.melt(["arm", "seed"], ["loss"], "metric")
        before = records_of(long, Question("a", {"loss": ""}, paired=True))
        both = pd.concat([long.assign(data="wiki"), long.assign(data="code")])
        after = records_of(both, Question("a", {"loss": ""}, paired=True), known=before.values)
        assert len(after.values) == 20 and before.values.keys() < after.values.keys()

    def test_a_run_keeps_what_it_lacked_at_looks_before_the_last(self, tmp_path: Path) -> None:
        kept = tmp_path / "kept.json"
        both = WIDE.assign(acc=[0.5 + n / 100 for n in range(10)]).astype({"acc": object})
        some = both.copy()
        some["acc"] = [ABSENT if n in (4, 9) else value for n, value in enumerate(both["acc"])]
        asked = {"paired": True, "empty": "unstarted"}
        sf.judge(some, "a", kept, metrics={"loss": "", "acc": ""}, **asked)
        sf.judge(some, "a", kept, metrics={"loss": ""}, margin=0.1, **asked)
        with pytest.raises(UsageError, match="had no acc when it was judged"):
            sf.judge(both, "a", kept, metrics={"loss": "", "acc": ""}, **asked)

    @pytest.mark.parametrize(("equal", "same"), [(1, False), (2, True), (3, True)])
    def test_two_equal_runs_of_two_arms_make_the_same_runs(self, tmp_path: Path, equal: int, same: bool) -> None:
        WIDE.to_csv(tmp_path / "one.csv", index=False)
        assert judge([str(tmp_path / "one.csv"), *self.ASKED]) == 0
        other = WIDE.assign(loss=WIDE["loss"].where(WIDE["seed"] <= equal, WIDE["loss"] * 1.1))
        other[other["seed"] <= (equal if same else 5)].to_csv(tmp_path / "two.csv", index=False)
        try:
            judge([str(tmp_path / "two.csv"), *self.ASKED])
        except UsageError as error:
            assert same and "must stay as they were" in str(error)
        assert (tmp_path / "two.csv.judged.json").exists() != same


class TestRunsWithoutTheMetric:
    """A run that ended without what is judged has lost it, as one whose cell is empty."""

    def verdict(self, table: pd.DataFrame, **asked: Any) -> str:
        return sf.judge(table, "a", metrics={"loss": ""}, paired=True, **asked).verdicts[0].outcome

    def test_a_run_of_a_long_table(self) -> None:
        long = WIDE.assign(acc=1.0).melt(["arm", "seed"], var_name="metric")
        lacking = long.drop(index=long[(long["arm"] == "b") & (long["seed"] == 3) & (long["metric"] == "loss")].index)
        assert self.verdict(long) == "supported" and self.verdict(lacking) == "undecided"
        assert self.verdict(lacking, empty="unstarted") == "supported"

    def test_a_run_of_a_metric_that_its_condition_does_not_have(self) -> None:
        long = WIDE.melt(["arm", "seed"], ["loss"], "metric").assign(data="wiki")
        other = long.assign(data="code", metric="acc")
        assert self.verdict(pd.concat([long, other])) == "supported"

    def test_a_file_for_each_run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for row in WIDE.to_dict("records"):
            lost = (row["arm"], row["seed"]) == ("b", 3)
            content = {"acc": 1} if lost else {"loss": row["loss"], "acc": 1}
            (tmp_path / f"{row['arm']}-{row['seed']}.json").write_text(json.dumps(content))
        asked = ["--name", "{arm}-{seed}.json", "--baseline", "a", "--metric", "loss", "--paired", "--json"]
        assert judge([str(tmp_path), *asked]) == 0
        assert json.loads(capsys.readouterr().out)["verdicts"][0]["outcome"] == "undecided"


class TestWhatIsSaidOnceOrTwice:
    def test_an_arm_that_path_and_column_say(self, tmp_path: Path) -> None:
        WIDE.assign(method=WIDE["arm"]).to_csv(tmp_path / "r.csv", index=False)
        with pytest.raises(UsageError, match=r"arm must be said once, but both --name and --columns arm=method"):
            judge([str(tmp_path), "--name", "{arm}.csv", "--columns", "arm=method", "--baseline", "a"])

    def test_columns_may_trade_their_names(self) -> None:
        table = WIDE.rename(columns={"arm": "seed", "seed": "arm"})
        found = sf.judge(table, "a", metrics={"loss": ""}, paired=True, columns={"arm": "seed", "seed": "arm"})
        assert found.verdicts[0].outcome == sf.judge(WIDE, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome

    def test_a_direction_in_some_rows(self) -> None:
        for empty in ("", None, float("nan"), ABSENT):
            table = WIDE.melt(["arm", "seed"], ["loss"], "metric").replace({"metric": {"loss": "drop"}})
            table = table.assign(direction=["lower", *[empty] * (len(table) - 1)])
            assert sf.judge(table, "a", metrics={"drop": ""}, paired=True).verdicts[0].outcome == "supported"

    def test_a_value_outside_its_range_is_told_by_its_seed(self) -> None:
        with pytest.raises(UsageError, match=r"but b has 2\.02 with seed 3; correct it"):
            sf.judge(WIDE, "a", metrics={"loss": ""}, ranges={"loss": (2.025, 3.0)})

    def test_a_column_of_states_that_nobody_knows(self) -> None:
        report = sf.judge(WIDE.assign(state="exploded"), "a", metrics={"loss": ""}, paired=True)
        assert any("`state` is not read" in each and "'exploded'" in each for each in report.caveats)
        assert not any("is not read" in each for each in sf.judge(WIDE, "a", metrics={"loss": ""}).caveats)

    @pytest.mark.parametrize("state", ["pending", "preempted", "oom"])
    def test_a_run_that_waits_has_not_ended(self, state: str) -> None:
        table = WIDE.assign(state=[state if n == 9 else "finished" for n in range(10)])
        assert sf.judge(table, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "undecided"


class TestHowFilesAreWritten:
    def test_what_excel_and_other_programs_write_above_a_table(self, tmp_path: Path) -> None:
        text = WIDE.to_csv(index=False, sep=";")
        for before in ("sep=;\n", "sep=;\r\n", "# made by us\n# today\n"):
            (tmp_path / "r.csv").write_text(before + text)
            assert [row["arm"] for _, row in file_rows([tmp_path / "r.csv"])] == list(WIDE["arm"])
        (tmp_path / "r.csv").write_text("#" + text)
        assert "#arm" in next(iter(file_rows([tmp_path / "r.csv"])))[1], "a head may begin so"

    def test_the_index_of_a_parquet_table_is_a_column_if_it_has_a_name(self, tmp_path: Path) -> None:
        WIDE.set_index(["arm", "seed"]).to_parquet(tmp_path / "r.parquet")
        assert [row["arm"] for _, row in file_rows([tmp_path / "r.parquet"])] == list(WIDE["arm"])
        WIDE[WIDE["seed"] > 0].to_parquet(tmp_path / "r.parquet")
        assert set(next(iter(file_rows([tmp_path / "r.parquet"])))[1]) == {"arm", "seed", "loss"}

    def test_copies_that_a_notebook_keeps_are_not_read(self, tmp_path: Path) -> None:
        (tmp_path / ".ipynb_checkpoints").mkdir()
        for place in (tmp_path, tmp_path / ".ipynb_checkpoints"):
            WIDE.to_csv(place / "r.csv", index=False)
        assert len(list(file_rows([tmp_path]))) == 10

    def test_scalars_of_newer_writers_and_folders_below_a_run(self, tmp_path: Path) -> None:
        writers = pytest.importorskip("torch.utils.tensorboard")
        for arm, seed, loss in WIDE.itertuples(index=False):
            with writers.SummaryWriter(str(tmp_path / arm / f"seed{seed}")) as writer:
                for step in (1, 2):
                    writer.add_scalar("loss", loss + 2 - step, step, new_style=True)
                writer.add_scalars("both", {"x": 1.0, "y": 2.0}, 2)
        rows = list(with_path(tensorboard_rows(tmp_path), "{arm}/seed{seed}"))
        assert len(rows) == 10 and [row["loss"] for row in rows] == pytest.approx(list(WIDE["loss"]))
        assert {row[STEPS]["loss"] for row in rows} == {2}

    def test_a_run_that_stops_one_step_before_the_others_has_stopped(self) -> None:
        rows = [{**row, LOST: None, STEPS: 19 if row["seed"] == 3 else 20} for row in WIDE.to_dict("records")]
        found = records_of(pd.DataFrame(rows), Question("a", {"loss": ""}))
        assert any("it stops at step 19, others of its arm at 20" in each for each in found.remarks)

    def test_a_number_may_begin_with_its_point(self) -> None:
        table = WIDE.assign(loss=[f"{value:.2f}".lstrip("0") for value in WIDE["loss"] - 1.5])
        assert table["loss"].str.startswith(".").any()
        assert sf.judge(table, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "supported"


class TestWhatTheLastHunterFound:
    ASKED = ("--baseline", "a", "--metric", "loss", "--paired")

    def outcome(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
        assert judge([*arguments, "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["verdicts"][0]["outcome"])

    @pytest.mark.parametrize("suffix", ["csv", "jsonl"])
    def test_a_file_of_a_run_without_a_row_is_a_run_that_was_lost(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
    ) -> None:
        for row in WIDE.to_dict("records"):
            (tmp_path / row["arm"]).mkdir(exist_ok=True)
            text = f"loss\n{row['loss']}\n" if suffix == "csv" else json.dumps({"loss": row["loss"]})
            (tmp_path / row["arm"] / f"{row['seed']}.{suffix}").write_text(text)
        name = ["--name", f"{{arm}}/{{seed}}.{suffix}"]
        assert self.outcome(capsys, str(tmp_path), *name, *self.ASKED) == "supported"
        (tmp_path / "b" / f"3.{suffix}").write_text("loss\n" if suffix == "csv" else "")
        assert self.outcome(capsys, str(tmp_path), *name, *self.ASKED, "--fresh") == "undecided"

    def test_runs_of_a_file_without_the_metric_are_told(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        WIDE.to_csv(tmp_path / "one.csv", index=False)
        (tmp_path / "two.csv").write_text("arm,seed,acc\nb,6,1\nb,7,1\n")
        judge([str(tmp_path / "one.csv"), str(tmp_path / "two.csv"), *self.ASKED])
        said = " ".join(capsys.readouterr().out.split())
        assert "2 runs of" in said and "have no loss: they are left out" in said

    def test_a_run_is_lost_if_the_row_of_another_metric_says_so(self) -> None:
        long = WIDE.assign(acc=1.0).melt(["arm", "seed"], var_name="metric").assign(state="finished")
        assert sf.judge(long, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "supported"
        long.loc[(long["arm"] == "b") & (long["seed"] == 3) & (long["metric"] == "acc"), "state"] = "crashed"
        assert sf.judge(long, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "undecided"

    def test_a_state_may_have_a_longer_name(self) -> None:
        for name in ("run_state", "extra.state", "Status"):
            table = WIDE.assign(**{name: ["crashed" if n == 9 else "finished" for n in range(10)]})
            assert sf.judge(table, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "undecided"

    def test_the_direction_of_a_wide_table_is_read(self) -> None:
        table = WIDE.assign(direction="higher", acc=1.0)
        assert sf.judge(table, "a", metrics={"loss": ""}, paired=True).verdicts[0].outcome == "refuted"
        with pytest.raises(UsageError, match="`direction` must be of one metric where each has a column"):
            sf.judge(table, "a", metrics={"loss": "", "acc": ""}, paired=True)

    def test_a_crashed_run_and_a_link_forget_no_look(self, tmp_path: Path) -> None:
        both = WIDE.assign(acc=[0.5 + n / 100 for n in range(10)])
        both.loc[9, ["loss", "acc"]] = None
        both.to_csv(tmp_path / "one.csv", index=False)
        judge([str(tmp_path / "one.csv"), *self.ASKED])
        both.to_csv(tmp_path / "two.csv", index=False)
        judge([str(tmp_path / "two.csv"), "--baseline", "a", "--metric", "acc", "--paired"])
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "link.csv").symlink_to(tmp_path / "one.csv")
        judge([str(tmp_path / "elsewhere" / "link.csv"), *self.ASKED])
        assert [path.name for path in tmp_path.rglob("*judged.json")] == ["one.csv.judged.json"]

    def test_a_folder_below_a_run_with_the_same_metric_is_refused(self, tmp_path: Path) -> None:
        writers = pytest.importorskip("torch.utils.tensorboard")
        for place, tag in (("b/seed1", "loss"), ("b/seed1/version_1", "loss")):
            with writers.SummaryWriter(str(tmp_path / place)) as writer:
                writer.add_scalar(tag, 1.0, 1)
        with pytest.raises(UsageError, match=r"a run must be in one folder, but .*version_1 and a folder above it"):
            list(with_path(tensorboard_rows(tmp_path), "{arm}/seed{seed}"))

    def test_hyperparameters_below_a_run_are_no_run(self, tmp_path: Path) -> None:
        writers = pytest.importorskip("torch.utils.tensorboard")
        with writers.SummaryWriter(str(tmp_path / "b" / "1")) as writer:
            writer.add_scalar("loss", 1.0, 1)
            writer.add_hparams({"lr": 0.1}, {"hparam/best": 1.0})
        assert [row["arm"] for row in with_path(tensorboard_rows(tmp_path), "{arm}/{seed}")] == ["b"]

    def test_a_page_in_the_place_of_looks_and_looks_that_were_left_out(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        table = tmp_path / "r.csv"
        WIDE.to_csv(table, index=False)
        with pytest.raises(UsageError, match=r"--html must name a page, but .* is to keep the looks"):
            judge([str(table), *self.ASKED, "--html", str(tmp_path / "r.csv.judged.json")])
        judge([str(table), *self.ASKED])
        judge([str(table), *self.ASKED, "--fresh"])
        capsys.readouterr()
        judge([str(table), *self.ASKED])
        assert "were left out by --fresh" in " ".join(capsys.readouterr().out.split())

    def test_a_configuration_of_wandb_that_was_updated_after_the_run_began(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entries = [
            {"type": "run", "run": {"run_id": "x", "config": {"update": {"norm": "layer", "old": 1}}}},
            {"type": "history", "history": {"item": {"loss": 2.0}}},
            {"type": "config", "config": {"update": {"norm": "rms"}, "remove": ["old"]}},
            {"type": "exit", "exit": {}},
        ]
        (tmp_path / "run.wandb").write_bytes(b"")
        monkeypatch.setattr(result_files, "_wandb_entries", lambda path: entries)
        (row,) = wandb_rows(tmp_path)
        assert row["norm"] == "rms" and "old" not in row and row["loss"] == 2.0 and not row[LOST]

    def test_a_resumed_run_that_was_killed_has_not_the_exit_of_its_first_part(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def part(time: str, *more: dict[str, Any]) -> list[dict[str, Any]]:
            return [{"type": "run", "run": {"run_id": "x", "start_time": time}}, *more]

        parts = {"1.wandb": part("1", {"type": "exit", "exit": {"exit_code": 0}}), "2.wandb": part("2")}
        for name in parts:
            (tmp_path / name).write_bytes(b"")
        monkeypatch.setattr(result_files, "_wandb_entries", lambda path: parts[path.name])
        (row,) = wandb_rows(tmp_path)
        assert row[LOST] == "it has no exit status, so it was killed or still runs"

    def test_settings_that_are_whole_numbers_tell_no_runs_apart(self, tmp_path: Path) -> None:
        """Their numbers are all different, and yet those of another table are the same."""
        WIDE.assign(number=range(10)).to_csv(tmp_path / "one.csv", index=False)
        assert judge([str(tmp_path / "one.csv"), *self.ASKED]) == 0
        other = WIDE.assign(number=range(10)).rename(columns={"loss": "error"})
        other.to_csv(tmp_path / "two.csv", index=False)
        assert judge([str(tmp_path / "two.csv"), "--baseline", "a", "--metric", "error", "--paired"]) == 0
        assert (tmp_path / "two.csv.judged.json").exists()

"""Studies of any command: how their files are read, what a command leaves, and what goes wrong with one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.command import with_command
from swapformer.study.config.compose import compose
from swapformer.study.config.identity import trial_id
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import execute
from swapformer.study.plan import make_trial

SCRIPT = '''
"""Walks to a target; a stand-in for a training script."""
import json, pathlib, random, sys, time
import beside  # a module of the script's folder
from argparse import ArgumentParser

parser = ArgumentParser()
for name, kind in {"lr": float, "seed": int, "out": pathlib.Path, "checkpoint": pathlib.Path, "mode": str}.items():
    parser.add_argument(f"--{name}", type=kind)
given = parser.parse_args()
noise = random.Random(0 if given.mode == "seedless" else given.seed)
state, start, x = given.checkpoint / "state.json", 0, 1.0
if state.exists():
    start, x = json.loads(state.read_text())
target = 0.1 * noise.random()
rows = ["step,val/loss"]
for step in range(start, 20):
    x -= given.lr * (x - target)
    rows.append(f"{step + 1},{(x - target) ** 2!r}")
    state.write_text(json.dumps([step + 1, x]))
    print(f"step {step + 1} loss {(x - target) ** 2!r}", flush=True)
    if given.mode == "slow":
        time.sleep(0.2)
loss = (x - target) ** 2
if given.mode == "fails":
    sys.exit("there is no such data")
if given.mode == "twice":
    (given.out / "metrics.json").write_text('{"val/loss": 1, "val/loss": 2}')
elif given.mode == "table":
    (given.out / "metrics.csv").write_text("\\n".join(rows))
elif given.mode == "empty":
    (given.out / "metrics.csv").write_text("\\n".join(rows))
    (given.out / "metrics.json").write_text('{"val/loss": null, "config": {"lr": 1}}')
elif given.mode == "words":
    (given.out / "metrics.json").write_text('{"val/loss": "fine"}')
elif given.mode != "nothing":
    (given.out / "metrics.json").write_text(json.dumps({"val/loss": loss, "other": 3, "bias": True, "name": "gpt"}))
'''
RUN = f"{sys.executable} walk.py --lr {{lr}} --mode {{mode}} --seed {{seed}} --out {{out}} --checkpoint {{checkpoint}}"
STUDY: dict[str, Any] = {
    "run": RUN,
    "code": ["walk.py"],
    "metrics": {"val/loss": "lower"},
    "baseline": "slow",
    "arms": {"slow": ["lr=0.01"], "fast": ["lr=0.3"]},
    "overrides": ["mode=plain"],
    "seeds": 3,
    "claims": [
        {"text": "fast is better", "better": {"arm": "fast", "than": "slow", "metric": "val/loss", "margin": 0.01}}
    ],
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "walk.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["swapformer"])
    return tmp_path


def overrides(mode: str = "plain", **changed: Any) -> list[str]:
    """Those of the first arm of the study, with another mode of the script or other keys of the file."""
    read = with_command({**STUDY, "overrides": [f"mode={mode}"], **changed})
    return [*read["overrides"], *read["arms"]["slow"]]


def run(mode: str = "plain", seed: int = 0, **changed: Any) -> Any:
    """The record of a trial of the first arm."""
    trial = make_trial(compose([*overrides(mode, **changed), f"seed={seed}"]))
    return execute(trial, Store("runs"), current_provenance())


def written(content: dict[str, Any]) -> str:
    Path("walk.yaml").write_text(json.dumps(content))
    return "walk.yaml"


def test_a_study_runs_judges_and_is_not_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", written(STUDY), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trials"] == {"finished": 6} and found["failed"] == {}
    assert [verdict["outcome"] for verdict in found["verdicts"]] == ["supported"]
    logs = {path: path.stat().st_mtime_ns for path in Path("runs/trials").glob("*/command.log")}
    assert main(["study", "walk.yaml"]) == 0
    assert logs == {path: path.stat().st_mtime_ns for path in Path("runs/trials").glob("*/command.log")}
    page = Path("runs/studies/walk/report/report.html").read_text()
    assert "walk.py --lr {lr}" in page and "measured as they were initialised" not in page
    assert "swapformer.model.position" not in page, "a command has no model of ours"


@pytest.mark.parametrize("axis", ["lr", ["lr"]])
def test_an_axis_names_what_the_command_is_filled_with(axis: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", written({**STUDY, "axis": axis}), "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "differs in more than" not in said.out + said.err
    read = with_command({**STUDY, "axis": axis})["axis"]
    assert read == ("measure.settings.lr" if axis == "lr" else ["measure.settings.lr"])


def test_metrics_are_those_of_the_file_the_table_or_printed_lines() -> None:
    one = run().metrics
    table = run("table")
    assert table.metrics == one and table.steps == 20
    assert one.keys() == {"val/loss"}, "what the study does not name is left out"
    lines = {"val/loss": r"^step (?P<step>\d+) loss ([\d.e-]+)"}
    printed = run("nothing", reads=lines)
    assert printed.metrics == one
    history = (Path("runs/trials") / printed.id / "metrics.csv").read_text().splitlines()
    assert len(history) == 21 and history[1].startswith("1,val/loss,")


@pytest.mark.parametrize(
    ("mode", "changed", "said"),
    [
        ("fails", {}, "ended with status 1: there is no such data"),
        ("nothing", {}, r"must leave val/loss, in \{out\}/metrics.json.* it left none"),
        ("plain", {"metrics": {"val/lost": "lower"}}, "left .*val/loss.*did you mean 'val/loss'"),
        ("twice", {}, "metrics.json must have each metric once, but it has 'val/loss' twice"),
        ("words", {}, "must be a number, but the command left val/loss = 'fine'"),
        ("empty", {}, "must be a number, but the command left val/loss = None"),
        ("nothing", {"reads": {"val/loss": r"loss ([\d.e-]+)"}}, "print val/loss once, but 20 lines fit"),
        ("slow", {"minutes": 0.01}, "must end within 0.01 minutes"),
        ("plain", {"run": f"no_such_program {RUN}"}, "one that can be run, but 'no_such_program'"),
    ],
)
def test_a_command_that_leaves_no_result_has_failed_and_says_why(mode: str, changed: Any, said: str) -> None:
    record = run(mode, **changed)
    assert record.status == "failed" and "\n" not in record.reason
    assert pytest.importorskip("re").search(said, record.reason), record.reason


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"run": RUN.replace("{seed}", "1")}, "has no {seed}"),
        ({"run": RUN.replace("{lr}", "{lr} {rate}")}, "{rate} has none"),
        ({"run": RUN.replace("--lr {lr}", "")}, "unknown key 'lr' in measure.settings"),
        ({"run": RUN + " '"}, "quotes do not match"),
        ({"run": 3}, "`run` must be a command"),
        ({"metrics": ["val/loss"]}, "say which way each is better"),
        ({"code": ["nowhere.py"]}, "nowhere.py: No such file"),
        ({"reads": {"val/loss": "loss"}}, "must have one group"),
    ],
)
def test_a_file_that_cannot_work_is_refused_before_anything_runs(
    changed: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", written({**STUDY, **changed})]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not list(Path("runs").glob("trials/*"))


def test_what_is_no_setting_is_swapformers() -> None:
    read = with_command({**STUDY, "overrides": ["mode=plain", "logger=csv", "trainer.threads=2"]})
    assert read["overrides"][-3:] == ["measure.settings.mode=plain", "logger=csv", "trainer.threads=2"]


def test_a_key_of_a_command_without_one_is_refused() -> None:
    with pytest.raises(UsageError, match="`code` is of a study of a command"):
        with_command({"code": ["walk.py"], "arms": {}})


def test_an_id_follows_command_settings_seed_and_code_and_nothing_of_ours() -> None:
    plain = trial_id(compose(overrides()))
    assert trial_id(compose([*overrides(), "model.d_model=32", "optim.lr=1"])) == plain
    others = [
        trial_id(compose([*overrides(), "seed=1"])),
        trial_id(compose(overrides("table"))),
        trial_id(compose(overrides(run=RUN.replace("walk.py", "./walk.py")))),
    ]
    Path("walk.py").write_text(SCRIPT + "# edited\n")
    assert len({plain, *others, trial_id(compose(overrides()))}) == 5


def test_code_that_changes_after_a_trial_was_named_is_refused() -> None:
    trial = make_trial(compose(overrides()))
    Path("walk.py").write_text(SCRIPT + "# edited\n")
    with pytest.raises(UsageError, match=r"walk\.py has changed"):
        execute(trial, Store("runs"), current_provenance())


def test_a_command_that_ignores_its_seed_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", written({**STUDY, "overrides": ["mode=seedless"]}), "--json"]) == 0
    caveats = json.loads(capsys.readouterr().out)["caveats"]
    assert any("ignore its seed" in caveat and "slow and fast" in caveat for caveat in caveats)


def test_settings_are_tuned_and_swept(capsys: pytest.CaptureFixture[str]) -> None:
    content = {**STUDY, "arms": {"slow": ["mode=plain"], "fast": ["mode=table"]}, "overrides": [], "claims": []}
    content |= {"tune": {"lr": [0.01, 0.1, 0.3], "seeds": 1}, "seeds": 2}
    assert main(["study", written(content), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trials"] == {"finished": 4} and len(list(Path("runs/trials").iterdir())) == 10
    chosen = {compose_of(path)["measure"]["settings"]["lr"] for path in Path("runs/trials").iterdir() if path.is_dir()}
    assert chosen == {0.01, 0.1, 0.3}


def compose_of(folder: Path) -> dict[str, Any]:
    from swapformer.results.config import read_config

    return read_config(folder)


def test_an_interrupted_command_goes_on_from_its_checkpoint_and_leaves_nothing_running() -> None:
    lines = {"val/loss": r"step (?P<step>\d+) loss (.*)"}
    expected, given = run("table", seed=5, reads=lines), [*overrides("slow", reads=lines), "seed=5"]
    program = f"""
        from pathlib import Path
        from swapformer.results.store import Store
        from swapformer.study.config.compose import compose
        from swapformer.study.launch.provenance import current_provenance
        from swapformer.study.launch.trial import execute
        from swapformer.study.plan import make_trial
        execute(make_trial(compose({given!r})), Store("runs"), current_provenance())
    """
    trial = make_trial(compose(given)).id
    process = subprocess.Popen([sys.executable, "-c", "\n".join(line.strip() for line in program.splitlines())])
    log, state = (
        Path("runs/trials") / trial / "command.log",
        Path("runs/trials") / trial / "checkpoints/command/state.json",
    )
    while not (state.exists() and log.exists() and len(log.read_text().splitlines()) >= 3):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)
    done = len(log.read_text().splitlines())
    assert 3 <= done < 20
    time.sleep(0.5)
    assert len(log.read_text().splitlines()) == done, "the command ended with the trial"
    assert os.path.exists(state)
    record = run("slow", seed=5, reads=lines)
    assert record.status == "finished" and record.metrics == expected.metrics and record.attempts == 2
    histories = [Path("runs/trials", each, "metrics.csv").read_text() for each in (record.id, expected.id)]
    assert histories[0] == histories[1], "the curve has its beginning too, by which times to a target are told"
    assert len(log.read_text().splitlines()) == 20, "steps that were done are not done again"


def test_a_metric_without_a_slash_is_told_exactly_that() -> None:
    raw = {
        "run": "python t.py --seed {seed}",
        "metrics": {"loss": "lower"},
        "baseline": "a",
        "arms": {"a": [], "b": []},
    }
    with pytest.raises(UsageError, match="with a slash between, such as val/loss, but it is 'loss'"):
        with_command(raw)


def prints(text: str, pattern: str = r"step (?P<step>\d+) loss ([\d.]+)", **changed: Any) -> Any:
    """The record of a command that prints a text; in `table` and `json` what it leaves instead."""
    left = {name: changed.pop(name, None) for name in ("table", "json")}
    Path("say.py").write_text(
        "import pathlib, sys\n"
        "out = pathlib.Path(sys.argv[2])\n"
        f"print({text!r})\n"
        + "".join(
            f"(out / 'metrics.{kind}').write_bytes({content!r})\n"
            for kind, content in (("csv", left["table"]), ("json", left["json"]))
            if content is not None
        )
    )
    reads = {"val/loss": pattern} if left == {"table": None, "json": None} else {}
    return run(
        run=f"{sys.executable} say.py {{seed}} {{out}}", code=["say.py"], reads=reads, arms={"slow": []}, overrides=[],
        **changed,
    )  # fmt: skip


class TestALostMetric:
    @pytest.mark.parametrize("word", ["nan", "NaN", "inf", "-inf"])
    def test_a_printed_line_without_a_number_is_the_last_value(self, word: str) -> None:
        """`([\\d.]+)` does not fit it, and the number before it was taken for the last."""
        record = prints(f"step 10 loss 2.5\nstep 20 loss  {word}\ndone, nan or not")
        assert record.status == "finished" and record.metrics == {} and "counts as lost" in " ".join(record.remarks)

    @pytest.mark.parametrize(
        ("text", "pattern"),
        [
            ("step 1 loss 3 (best)\nstep 2 loss nan\n", r"step (?P<step>\d+) loss ([\d.]+)"),
            ("step 1 loss 3\nstep 2 loss nan (skipped)\n", r"step (?P<step>\d+) loss ([\d.]+)"),
            ("step 1 loss 3\rstep 2 loss nan\r", r"step (?P<step>\d+) loss ([\d.]+)"),
            ("step 1 loss 3\niter 2: 1 ms\niter 3: 1 ms\nstep 4 loss None\n", r"step (?P<step>\d+) loss ([\d.]+)"),
            ("step 1 loss tensor(3., device=0)\nstep 2 loss tensor(nan)", r"step (?P<step>\d+) loss tensor\(([\d.]+)"),
            (
                "Epoch 1/2\n5/5 val_loss: 2.2\nEpoch 2/2\n5/5 val_loss: nan",
                r"Epoch (?P<step>\d+)/\d+\n.*loss: ([\d.]+)",
            ),
        ],
    )
    def test_it_is_seen_however_the_line_goes_on(self, text: str, pattern: str) -> None:
        assert prints(text, pattern).metrics == {}

    @pytest.mark.parametrize(
        ("table", "text"), [(b"step,val/loss\n1000,2\n0,3\n", ""), (None, "step 9 loss 2\nstep 1 loss 3")]
    )
    def test_steps_that_go_back_leave_no_last_value(self, table: bytes | None, text: str) -> None:
        record = prints(text, **({} if table is None else {"table": table}))
        assert record.status == "failed" and "the steps of val/loss must not go back" in record.reason

    @pytest.mark.parametrize(
        ("before", "last", "pattern"),
        [
            ("9.5", "12.31", r"step (?P<step>\d+) loss (\d\.\d+)"),
            ("0.97", "1.0", r"step (?P<step>\d+) loss (0\.\d+)"),
            ("0.5", "9e-05", r"step (?P<step>\d+) loss (\d+\.\d+)"),
            ("0.5", "3", r"step (?P<step>\d+) loss (\d+\.\d+)"),
            ("0.5", "-12.5", r"step (?P<step>\d+) loss ([\d.]+)"),
            ("0.5", "−12.5", r"step (?P<step>\d+) loss ([\d.]+)"),
            ("0.5", "1,234.5", r"step (?P<step>\d+) loss (\d\.\d+)"),
        ],
    )
    def test_a_last_number_that_the_pattern_does_not_fit_is_not_passed_over(
        self, before: str, last: str, pattern: str
    ) -> None:
        """The one before it was the result: an arm would be better for having diverged in the end."""
        record = prints(f"step 1 loss {before}\nstep 2 loss {last}\n", pattern)
        assert record.status == "failed" and f"'step 2 loss {last}'" in record.reason
        assert prints(f"step 1 loss {last}\nstep 2 loss {before}\n", pattern).metrics == {"val/loss": float(before)}

    def test_nor_is_a_line_whose_step_it_does_not_fit(self) -> None:
        record = prints("step 999 loss 0.5\nstep 1,000 loss 0.3\n", r"step (?P<step>\d+) loss (\S+)")
        assert record.status == "failed" and "'step 1,000 loss 0.3'" in record.reason

    def test_a_column_whose_values_lie_unevenly_apart_is_empty_after_the_smallest_distance(self) -> None:
        rows = ["step,loss,val/loss", *(f"{step},1.0,{2 if step in (0, 1, 50, 51) else ''}" for step in range(61))]
        assert prints("", table="\n".join(rows).encode()).metrics.get("val/loss") is None

    def test_lines_of_another_shape_and_lines_before_the_last_value_say_nothing_of_it(self) -> None:
        record = prints("step 5 loss nan\nstep 10 loss 2.5\ngrad norm nan\nloss 3 nan steps")
        assert record.metrics == {"val/loss": 2.5}

    @pytest.mark.parametrize(
        ("text", "pattern", "shown"),
        [
            ("step 10 loss 1.2e-05", r"step (?P<step>\d+) loss ([\d.]+)", "'1.2' of 'ss 1.2e-05'"),
            ("step 10 loss 1.25", r"step (?P<step>\d+) loss (\d)", "'1' of"),
            ("step 10 loss 1.25", r"step (?P<step>\d+).*([\d.]+)", "'5' of"),
            ("step 10 loss -1.25", r"step (?P<step>\d+) .*?([\d.]+)", "'1.25' of"),
            ("step 10 loss 1.25", r".*(?P<step>\d) loss (\S+)", "'0' of"),
            ("step 10 loss 12,345.6", r"step (?P<step>\d+) loss ([\d.]+)", "'12' of"),
            ("step 10 loss 0,95", r"step (?P<step>\d+) loss ([\d.]+)", "'0' of"),
            ("step 10 loss 1_234", r"step (?P<step>\d+) loss ([\d.]+)", "'1' of"),
            ("step 10 loss 1.1M", r"step (?P<step>\d+) loss ([\d.]+)", "'1.1' of"),
            ("step 10 right 3/5", r"step (?P<step>\d+) right (\d+)", "'3' of"),
            ("10,-1.53", r"(?P<step>\d+).*?(\d+\.\d+)", "'1.53' of"),
            ("step 10 wall 12:34", r"step (?P<step>\d+) wall ([\d.]+)", "'12' of"),
            ("step 10 wall 1m23s", r"step (?P<step>\d+) wall (\d+)", "'1' of"),
            ("step 10 [00:59<01:10]", r"step (?P<step>\d+) \[(\d+)", "'00' of"),
            ("step 10 loss 12'345.5", r"step (?P<step>\d+) loss (\d+)", "'12' of"),
            ("step 10 loss 1.5d-3", r"step (?P<step>\d+) loss ([\d.]+)", "'1.5' of"),
            ("step 10 loss 5×10^3", r"step (?P<step>\d+) loss (\d+)", "'5' of"),
            ("step 10 tokens 1.5B", r"step (?P<step>\d+) tokens ([\d.]+)", "'1.5' of"),
            ("step 10 loss −0.5", r"step (?P<step>\d+) loss .?([\d.]+)", "'0.5' of"),
        ],
    )
    def test_a_pattern_that_takes_a_piece_of_a_number_is_refused(self, text: str, pattern: str, shown: str) -> None:
        record = prints(text, pattern)
        assert record.status == "failed" and shown in record.reason and r"write (\S+)" in record.reason

    @pytest.mark.parametrize(
        ("text", "pattern", "value"),
        [
            ("step 10 loss -1.2e+01", r"step (?P<step>\d+) loss (\S+)", -12.0),
            ("step 10 loss=1.25, lr 3", r"step (?P<step>\d+) loss=([\d.]+)", 1.25),
            ("epoch-10-loss-1.25.ckpt", r"epoch-(?P<step>\d+)-loss-(\d+\.\d+)", 1.25),
            ("step 10 loss .5", r"step (?P<step>\d+) loss (\S+)", 0.5),
            ("10,0.51,123", r"^(?P<step>\d+),([\d.]+)", 0.51),
            ("Epoch 10/20 loss 1.5s", r"Epoch (?P<step>\d+)/\d+ loss ([\d.]+)s", 1.5),
        ],
    )
    def test_one_that_takes_all_of_it_is_read(self, text: str, pattern: str, value: float) -> None:
        assert prints(text, pattern).metrics == {"val/loss": value}

    @pytest.mark.parametrize(
        ("table", "value"),
        [
            ("step,val/loss\n1,3\n2,2\n3,\n", None),  # as pandas writes nan
            ("step,train/loss,val/loss\n1,3,\n2,2,2.5\n3,2,\n4,2,2.25\n5,2,\n", 2.25),
            ("step,train/loss,val/loss\n1,3,\n2,2,2.5\n3,2,\n4,2,2.25\n5,,\n6,,\n", None),
            ("step,val/loss\n1,3\n2,\n", None),
            ("step,train/loss,val/loss\n1,3,\n2,2,2.5\n", 2.5),
            ("step,val/loss\n100,4\n200,\n300,3\n400,2.9\n500,\n", None),  # nan in between does not hide the last
            ("step,val/loss\n0,4\n500,3\n600,2.9\n700,\n", None),
            ("step,train/loss,val/loss\n1,,4\n2,,3\n4,,2\n8,,1\n15,3,\n", 1),  # the next one is due at 16
            ("epoch,step,train/loss,val/loss,test/loss\n0,9,1,,\n0,9,,2,\n1,10,,,3\n", 2),  # as Lightning's logger
            ("step,train/loss,val/loss\n0,,4\n1,3,\n2,,\n", None),
        ],
    )
    def test_a_column_that_ends_empty_where_its_next_value_should_stand(self, table: str, value: float | None) -> None:
        record = prints("", table=table.encode())
        assert record.status == "finished" and record.metrics == ({} if value is None else {"val/loss": value})
        assert value is not None or "is empty in the last rows of its column: it counts as lost" in record.remarks[0]

    def test_what_the_object_says_is_the_last_word(self) -> None:
        record = prints("", table=b"step,val/loss\n1,3\n2,\n", json=b'{"val/loss": 2.5}')
        assert record.metrics == {"val/loss": 2.5}


def test_a_byte_order_mark_and_blank_lines_are_no_part_of_what_a_command_leaves() -> None:
    assert prints("", table=b"\xef\xbb\xbfstep,val/loss\n1,3\n\n2,2\n\n").metrics == {"val/loss": 2}
    assert prints("", json=b'\xef\xbb\xbf{"val/loss": 2.5}').metrics == {"val/loss": 2.5}


def test_a_last_line_that_was_cut_off_is_no_point_of_the_history_before(place: Path) -> None:
    from swapformer.measure.command import Command

    reads = {"val/loss": r"step (?P<step>\d+) loss (\S+)"}
    made = Command(run="x {seed}", settings={}, metrics={"val/loss": "lower"}, reads=reads, code=[], minutes=None)
    folder, checkpoint = place / "trial", place / "trial" / "checkpoints"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state").write_text("1")
    (folder / "command.log").write_text("step 1 loss 2.5\nstep 2 loss 2.2")
    assert made._left_by_earlier_attempts(folder, folder / "output", checkpoint) == {1: {"val/loss": 2.5}}
    (folder / "command.log").write_text("step 1 loss 2.5\nstep 2 loss 2.2\nstep 2 loss 2.3\nstep 1 loss 2.4\n")
    found = made._left_by_earlier_attempts(folder, folder / "output", checkpoint)
    assert found == {1: {"val/loss": 2.4}, 2: {"val/loss": 2.3}}, "attempts that began at their checkpoint"

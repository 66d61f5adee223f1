"""Command lines that cannot be meant: each is refused in one line, at once, and leaves no trace."""

from __future__ import annotations

import errno
import shlex
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swapformer.cli import main
from swapformer.console import LONGEST, UNFORESEEN, guarded
from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.results.store import Store
from swapformer.study import run_study
from swapformer.study.config import nodes
from swapformer.tools import sample

STUDY = """
question: Does a copy need positions?
baseline: rope
arms: {rope: [model/position=rope], none: [model/position=none]}
overrides: [task=copy, "task.eval_lengths=[]", "task.lengths=[2,4]", budget.steps=2, schedule.warmup_steps=0,
            model.d_model=16]
seeds: 1
"""
DEEP = "[" * 3000 + "]" * 3000
HUGE = "9" * 23
FILES = {
    "deep.yaml": f"question: {DEEP}",
    "seeds.yaml": STUDY.replace("seeds: 1", "seeds: 1000000000"),
    "huge.yaml": STUDY.replace("seeds: 1", f"seeds: [{HUGE}]"),
    "looks.yaml": STUDY.replace("seeds: 1", "seeds: {looks: [2, 1000000000]}"),
    "tune.yaml": f"{STUDY}tune: {{optim.lr: [0.1, 0.2], seeds: 1000000000}}",
    "grid.yaml": f"{STUDY}grid: {{optim.lr: {[i / 1e4 for i in range(1, 300)]}, seed_: {list(range(300))}}}",
    "baseline.yaml": STUDY.replace("baseline: rope", "baseline: [rope]"),
    "set.yaml": STUDY.replace("baseline: rope", "baseline: !!set {rope}"),
    "escape.yaml": f'{STUDY}"\\e[31mred\\u202e": 1',
    "long.yaml": f"{STUDY}{'x' * 10_000}: 1",
    "scales.yaml": f"{STUDY}scales: {{../../x: {{seeds: 1}}}}",
    "arm.yaml": STUDY.replace("model/position=none", '"model.layers=[{at: 0, pattern: ../norm/rmsnorm}]"'),
    **dict.fromkeys(
        ("...yaml", "..yaml", " .yaml", "a;b.yaml", "=x.yaml", "a\x1b[2J.yaml", f"{'x' * 201}.yaml"), STUDY
    ),
}
OVERRIDES = (
    *("seeds={", "seeds=[", "seeds=*a", "seeds=!!python/name:os.system", "seeds=2020-99-99", "seeds=1000000000"),
    *(f"seeds={HUGE}", f"seeds=[{HUGE}]", f"seeds={DEEP}"),
    *(f"~{key}" for key in ("schedule", "optim", "task", "trainer", "budget", "seed", "runs_dir", "eval")),
    *(f"~{key}" for key in ("allow", "probes", "data_seed", "divergence", "init_fresh", "optim.lr", "eval.every")),
    *(f"~{key}" for key in ("trainer.threads", "model.d_model", "model.layers", "model.encoder", "model/position")),
    *(f"~{key}" for key in ("model.position._partial_", "optim._target_", "model.position._target_")),
    *("runs_dir=null", "runs_dir=", "runs_dir=3", "runs_dir={a: 1}", "runs_dir=[a]", 'runs_dir="a\0b"'),
    *("optim=null", "task=null", "model=null", "model/norm=null", "model.norm=null", "budget=null", "eval=null"),
    *("probes=3", "logger=3", "allow=3", "allow=null", "model.layers=null", "model/position=3", "hydra=3"),
    *("hydra.launcher=3", "hydra.sweeper=3", "=3", "++=3", "{", "~", "model={}", "optim={}"),
    *("model/position=../norm/rmsnorm", "model/position=/etc/passwd", "model/position=", "model/norm={}"),
    *(f"model.layers=[{{at: 0, pattern: {name}}}]" for name in ("../norm/rmsnorm", "/etc/passwd", '""', ".", "a@b")),
    "model.layers=[{at: 0, extension: [../norm/rmsnorm]}]",
    *(f"model.layers={DEEP}", f"model.layers={'[' * 3000}", f"question={DEEP}"),
    *(f"{key}={HUGE}" for key in ("model.num_layers", "model.d_model", "model.num_heads", "budget.steps", "seed")),
    *(f"{key}={HUGE}" for key in ("task.batch_size", "eval.batches", "trainer.threads", "optim.lr", "data_seed")),
    *("model.num_layers=100000", "model.d_model=200000", "model.d_model=1000000000", "task.batch_size=100000000"),
    *("task.lengths=[2,100000]", f"task.lengths=[2,{HUGE}]", "task.symbols=1000000000"),
    *("model.position._partial_=false", "+model.position._args_=3", "model.position._target_=null"),
    *("model.position._target_=swapformer.model.norm.RMSNorm", "task._target_=swapformer.model.position.Rotary"),
    *(f"model.{'x' * 5000}=3", f"model/position={'x' * 5000}", 'model.position.base="\x1b[31mred"', "\u202ered=3"),
    *("model/topology=encoder_decoder model.encoder.num_layers=100000", "model/ffn=moe model.ffn.experts=1000000000"),
    *("model.ffn.width=1000000000", f"model.ffn.width={HUGE}", "model/position=learned model.max_len=1000000000000"),
    "model/attention=performer model.attention.features=1000000000",
)
LINES = (
    *(f"study {shlex.quote(name)}" for name in FILES if name != "scales.yaml"),
    "study scales.yaml scale=../../x",
    *(f"study {name}" for name in ("y" * 5000, "y" * 5000 + ".yaml", "'x\x1b[31m'", "'x\udcff.yaml'", "''", "/")),
    *(
        "train =3",
        "train {",
        "train ~schedule",
        "train ~task",
        "train task=copy runs_dir=null",
        "train task=listops task.depth=1000000",
        "train --resolve",
    ),
    *("train -sc", "train task=modular_addition task.modulus=100000000"),
    *("train -m task=copy 'seed=range(1000000000)'", "train -m task=copy 'model.d_model=range(1,1000000000)'"),
    *("train -m 'x=range(1,2,0)'", f"train -m task=copy seed={HUGE}", "train -m =3"),
    *("train -m task=copy hydra.sweeper.name=../../x seed=0,1", "train -m task=copy hydra.sweeper.name=a/b/c seed=0,1"),
    *("train task=text task/tokeniser=bpe task.tokeniser.vocab_size=1000000000", "cost task=copy ~schedule"),
    *("cost task=copy model.num_layers=100000", "cost {", "show task=copy task.batch_size=100000000"),
    *("check model/position=nothing", "report 'pos\x1b[31m'", "list '\x1b[31m'", "status ''"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with study files of every kind, in which nothing was ever run."""
    place = tmp_path_factory.mktemp("inputs")
    (place / "plain.yaml").write_text(STUDY)
    for name, text in FILES.items():
        (place / name).write_text(text)
    return place


CASES = [
    *LINES,
    *(f"study plain.yaml {shlex.join(shlex.split(one)) if ' model' in one else shlex.quote(one)}" for one in OVERRIDES),
]
"""Two of three are in `make evidence`: most compose a study."""


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=[pytest.mark.evidence] * (at % 3 > 0)) for at, line in enumerate(CASES)],
    ids=lambda line: ascii(line)[1:60],
)
def test_what_cannot_be_meant_is_refused_in_one_line_and_leaves_no_trace(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["swapformer"])
    before = sorted(place.parent.rglob("*"))
    status: Any = main(shlex.split(line))
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert said.err.startswith("swapformer: error: ") and said.err.count("\n") == 1
    assert len(said.err) <= LONGEST + 1 and said.err[:-1].isprintable()
    assert sorted(place.parent.rglob("*")) == before


def test_the_memory_of_the_machine_is_the_limit_unless_a_configuration_says_otherwise(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cost` allocates nothing, so that a model for another machine can be counted on this one."""
    monkeypatch.chdir(place)
    wide = ["cost", "task=copy", "model.d_model=200000"]
    assert main(wide) == 2
    said = capsys.readouterr().err
    assert "GiB, but this machine has" in said and "lower model.num_layers, model.d_model" in said
    assert main([*wide, "allow=[size]"]) == 0


def test_a_true_bug_keeps_its_traceback_and_is_called_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)

    def broken(config: object) -> None:
        raise KeyError("forgotten")

    monkeypatch.setattr(nodes, "require_nodes", broken)
    with pytest.raises(KeyError, match="forgotten") as caught:
        main(["study", "plain.yaml"])
    assert caught.value.__notes__ == [UNFORESEEN]


@pytest.mark.parametrize("number", [errno.EFBIG, errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_is_one_line_with_the_remedy(
    number: int, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(Store, "prepare", lambda self: None)

    def full(folder: Path, manifest: object) -> None:
        raise OSError(number, "no", str(tmp_path / "manifest.json"))

    monkeypatch.setattr(run_study, "write_manifest", full)
    assert main(["study", "plain.yaml", f"runs_dir={tmp_path}"]) == 1
    *_, said = capsys.readouterr().err.splitlines()
    assert "manifest.json cannot be written: no; " in said and "the same command continues from here" in said


def test_a_warning_of_a_library_is_one_line_that_says_who_warns(capsys: pytest.CaptureFixture[str]) -> None:
    """Python prints what `formatwarning` makes of a warning; pytest itself records warnings instead."""

    def careless() -> None:
        sys.stderr.write(warnings.formatwarning("no folder\nnowhere", UserWarning, "library.py", 3))

    before = warnings.formatwarning
    assert guarded(careless) == 0
    assert capsys.readouterr().err == "swapformer: warning: no folder nowhere\n"
    assert warnings.formatwarning is before
    assert guarded(careless, debug=True) == 0
    assert "library.py:3: UserWarning" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["task", "optim", "model/norm"])
def test_a_setting_whose_name_is_a_number_is_refused(
    key: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own words for it would be a riddle: keywords must be strings."""
    monkeypatch.chdir(place)
    name = {"task": "copy", "optim": "adamw", "model/norm": "rmsnorm"}[key]
    text = (conf_dir() / key / f"{name}.yaml").read_text()
    option = place / "numbered" / key / "mine.yaml"
    option.parent.mkdir(parents=True)
    option.write_text(f"{text}\n1: 2\n")
    assert main(["cost", f"hydra.searchpath=[file://{place}/numbered]", "task=copy", f"{key}=mine"]) == 2
    assert "must hold settings by name, but one is named 1; take it out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        *("--beams 1000000", "--beams 0", f"--beams {HUGE}", "--temperature nan", "--temperature -1", "--top-p 2"),
        *("--temperature inf", "--length-penalty nan", "--top-k 0", f"--top-k {HUGE}", "--top-p x", "--seed x"),
    ],
)
def test_options_of_a_sample_are_held_to_their_ranges(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["sample", "abcd", "--prompt", "a", *option.split()])
    said = capsys.readouterr().err.splitlines()[-1]
    assert stop.value.code == 2 and f"argument {option.split()[0]}: " in said


def test_beams_that_the_machine_cannot_hold_are_refused_before_any_is_searched() -> None:
    """Twelve layers of width 768 keep 2 · 12 · 768 numbers of each token of each beam, 74 kB in float32."""
    model = SimpleNamespace(dims=SimpleNamespace(vocab_size=100, num_layers=12, d_model=768))
    sample._require_memory(model, 100, 8)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"10,000 beams of 1,000,000 tokens take 686,\d+ GiB, but this machine has"):
        sample._require_memory(model, 10**6, 10_000)  # type: ignore[arg-type]

"""A configuration of somebody else's reads nothing of the machine that it runs on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.study.config.compose import compose
from swapformer.study.config.hydra_errors import explained
from swapformer.study.config.resolvers import VARIABLE, resolvers

SECRET = "the-key-of-the-house"
TINY = [
    *("task=copy", "budget.steps=3", "schedule.warmup_steps=0", "model.d_model=16", "model.num_layers=1"),
    *("model.num_heads=2", "eval.batches=1", "eval.final_batches=1", "task.batch_size=4", "task.lengths=[2,4]"),
    "task.eval_lengths=[6]",
]


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MYSECRET", SECRET)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("${seed}", []),
        ("${model.d_model}: ${seed}", []),
        ("${oc.env:HOME}", ["oc.env"]),
        ("a ${ oc.env : HOME } b", ["oc.env"]),
        ("${a.${oc.env:X}}", ["oc.env"]),
        ("${${name}:X}", ["${name}"]),
        ("${oc.decode:${oc.env:X}}", ["oc.decode", "oc.env"]),
        ("\\${oc.env:X}", ["oc.env"]),
        ("{a: ${seed}}", []),
        ("${oc.env:X", ["oc.env"]),
    ],
)
def test_the_resolvers_of_a_text_are_found_wherever_they_stand(text: str, names: list[str]) -> None:
    assert list(resolvers(text)) == names


@pytest.mark.parametrize(
    "override",
    [
        'logger.wandb.tags=["${oc.env:MYSECRET}"]',
        "runs_dir=${oc.env:MYSECRET}",
        "task=${oc.env:MYSECRET}",
        "model.layers=[{at: 0, num_heads: '${oc.env:MYSECRET}'}]",
        "hydra.sweeper.name=${oc.env:MYSECRET}",
        "+model.${oc.env:MYSECRET}=1",
        "runs_dir=${now:%Y}",
        "runs_dir=${oc.decode:${oc.env:MYSECRET}}",
    ],
)
def test_an_override_that_asks_a_resolver_is_refused_with_the_way_to_allow_it(override: str) -> None:
    with pytest.raises(UsageError, match=rf"asks the resolver '(oc\.env|now|oc\.decode)'; .*{VARIABLE}=") as refused:
        compose([*TINY, override])
    assert SECRET not in str(refused.value)
    with pytest.raises(UsageError, match="asks the resolver"), explained([override]):
        pass


def test_the_user_may_allow_a_resolver_by_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "now, oc.env")
    assert compose([*TINY, "runs_dir=${oc.env:MYSECRET}"])["runs_dir"] == SECRET


def test_the_resolvers_of_our_own_conf_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    assert compose([*TINY, "logger=wandb"])["logger"]["wandb"]["mode"] == "online"


def test_references_to_other_keys_are_followed() -> None:
    assert compose([*TINY, "log_every=${seed}", "seed=7"])["log_every"] == 7


@pytest.mark.parametrize("command", ["train", "study"])
@pytest.mark.parametrize("where", ["folder", "overrides", "arm", "tune", "grid"])
def test_a_secret_of_the_environment_reaches_no_file(
    command: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A planted fault: without the refusal, the secret stands in config.yaml, manifest.json and report.html."""
    secret = "${oc.env:MYSECRET}"
    given = [*TINY, f"runs_dir={tmp_path / 'runs'}", "logger=wandb", "logger.wandb.mode=offline"]
    if where == "folder":
        (tmp_path / "mine" / "logger").mkdir(parents=True)
        (tmp_path / "mine" / "logger" / "own.yaml").write_text(f"defaults: [wandb]\nwandb: {{tags: ['{secret}']}}\n")
        given = [*given, f"hydra.searchpath=[file://{tmp_path / 'mine'}]", "logger=own"]
        given.remove("logger=wandb")
    elif command == "train":
        given.append(f"logger.wandb.project='{secret}'")
    if command == "train":
        status = main(["train", *given])
    else:
        study = {"baseline": "a", "arms": {"a": [], "b": ["model.num_heads=1"]}, "seeds": 1, "overrides": given}
        leak = f"logger.wandb.project={secret}"
        study |= {"overrides": [*given, leak]} if where == "overrides" else {}
        study |= {"arms": {"a": [], "b": [leak]}} if where == "arm" else {}
        study |= {where: {"logger.wandb.project": [secret, "x"]}} if where in ("tune", "grid") else {}
        (tmp_path / "own.yaml").write_text(json.dumps(study))
        status = main(["study", "own.yaml"])
    said = capsys.readouterr()
    assert status == 2 and "asks the resolver 'oc.env'" in said.err and said.err.count("\n") == 1
    assert SECRET not in said.out + said.err
    assert not (tmp_path / "runs").exists()

"""Every argument of Lightning's trainer can be set, or is answered with what says the same here."""

from __future__ import annotations

import inspect

import lightning
import pytest

from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.study.config.compose import check, compose, trial_id
from swapformer.study.config.hydra_errors import explained
from swapformer.study.config.identity import WATCHING
from swapformer.study.config.lightning_options import TOP, TRAINER
from swapformer.yaml_reader import read_yaml

OPTIONS = set(read_yaml(conf_dir() / "trainer" / "cpu.yaml"))


def test_no_argument_of_the_trainer_is_without_an_answer() -> None:
    arguments = set(inspect.signature(lightning.Trainer.__init__).parameters) - {"self"}
    assert arguments <= OPTIONS | TRAINER.keys(), "a new one of Lightning's: pass it on, or say why not"
    assert not OPTIONS & TRAINER.keys() and len(TRAINER) > 20


@pytest.mark.parametrize("key", ["trainer.max_epochs", "trainer.limit_val_batches", "trainer.callbacks", "ckpt_path"])
@pytest.mark.parametrize("plus", ["", "+"])
def test_what_is_not_an_option_is_answered_with_ours(key: str, plus: str) -> None:
    """Also where `+` adds it to the configuration."""
    override = f"{plus}{key}=3"
    with (
        pytest.raises(UsageError, match=rf"{key} is not an option here: .*(=…|budget|say)") as refused,
        explained([override]),
    ):
        check(compose(["task=copy", override]))
    assert {**TRAINER, **TOP}[key.rpartition(".")[2]] in str(refused.value)


def test_what_only_watches_is_not_part_of_a_trials_id_and_the_rest_is() -> None:
    plain = trial_id(compose(["task=copy"]))
    for given in ("trainer.profiler=simple", "trainer.detect_anomaly=true"):
        assert given.partition("=")[0].rpartition(".")[2] in WATCHING
        assert trial_id(compose(["task=copy", given])) == plain
    for given in ("trainer.gradient_clip_algorithm=value", "trainer.gradient_clip_val=0.5", "trainer.tf32=true"):
        assert trial_id(compose(["task=copy", given])) != plain


@pytest.mark.parametrize(
    "given", ["trainer.profiler=fast", "trainer.gradient_clip_algorithm=2", "trainer.detect_anomaly=3"]
)
def test_a_wrong_value_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match=given.partition("=")[0]):
        check(compose(["task=copy", given]))


@pytest.mark.parametrize(
    ("override", "instead"),
    [
        ("trainer.fold=seeds", "trainer.fold is gone: trials run side by side; say --slots N"),
        ("trainer.graph=false", "trainer.graph is gone: say trainer.compile=reduce-overhead"),
        ("budget.branch=false", "budget.branch is gone: every trial trains from its first step"),
        ("eval/average=ema", "eval/average is gone: say callbacks=last or callbacks=ema"),
        ("logger=trackio", "logger=trackio is gone: say logger=lightning"),
        ("logger=mlflow", "logger=mlflow is gone: say logger=lightning"),
    ],
)
def test_an_option_that_is_gone_says_what_to_use(override: str, instead: str) -> None:
    with pytest.raises(UsageError, match=instead), explained([override]):
        compose([override])

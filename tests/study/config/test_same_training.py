"""The law against arms that train the same model: planted settings that do nothing here, and changes that look so."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from swapformer.study.config import compose as composer
from swapformer.training.effects import STAGES

TINY = (
    *("task=copy", "task.lengths=[2,4]", "task.eval_lengths=[6]", "task.batch_size=4", "budget.steps=3"),
    *("schedule.warmup_steps=0", "model.d_model=16", "model.num_layers=1", "model.num_heads=2"),
)
EXPERT = ("model/ffn=switch", "model.ffn.experts=1")
EXPERTS = ("model/ffn=switch", "model.ffn.experts=4")
WARM = ("schedule.warmup_steps=2",)
REZERO = ("model/residual=rezero",)
WINDOW = ("model/pattern=window",)
BATCHNORM = ("model/norm=batchnorm", "model/pattern=full", "allow=[future]")
EARLY = ("model/depth=early_exit", "model.num_layers=2")

DEAD = {
    "dropout is 0": ((), ("model.ffn.drop_hidden=true",)),
    "dropout is 0 in the only layer": (("model.dropout=0.1", "model.layers=[{at: 0, dropout: 0.0}]"),
        ("model.dropout=0.1", "model.layers=[{at: 0, dropout: 0.0, ffn.drop_hidden: true}]")),
    "the warm-up ends at the last step": (WARM, (*WARM, "schedule=linear")),
    "a balance of one expert": (EXPERT, (*EXPERT, "model.ffn.balance=1.0")),
    "no table for positions under rope": ((), ("model.max_len=100",)),
    "a window beyond every sequence": ((*WINDOW, "model.pattern.before=500"), (*WINDOW, "model.pattern.before=900")),
    "a clip that nothing reaches": ((), ("model.ffn.clip=1.0e+9",)),
    "a way of clipping where nothing is clipped": (("trainer.gradient_clip_val=0",),
        ("trainer.gradient_clip_val=0", "trainer.gradient_clip_algorithm=value")),
    "the same weights frozen in other words": (("optim.freeze=[ffn]",), ("optim.freeze=[ffn,ffn]",)),
    "dropout is 0, by another kernel": (("model/kernel=sdpa",),
        ("model/kernel=reference", "model.ffn.drop_hidden=true")),
}  # fmt: skip

ALIVE = {
    "dropout within the layer": (("model.dropout=0.1",), ("model.dropout=0.1", "model.ffn.drop_hidden=true")),
    "a balance of four experts": (EXPERTS, (*EXPERTS, "model.ffn.balance=1.0")),
    "an activation in branches that start at zero": (REZERO, (*REZERO, "model/activation=relu")),
    "an activation before a head that starts at zero": (("+preset=fixup",), ("+preset=fixup", "model/activation=relu")),
    "a clip that trained weights may reach": ((), ("model.ffn.clip=6.0",)),
    "weight decay": ((), ("optim.weight_decay=0.0",)),
    "a momentum": ((), ("optim.betas=[0.9,0.98]",)),
    "a schedule that differs at the end": ((), ("schedule=linear",)),
    "a bound on gradients that may be reached later": ((), ("trainer.gradient_clip_val=1000.0",)),
    "another way of clipping": ((), ("trainer.gradient_clip_algorithm=value",)),
    "data seeds": (("data_seed=1",), ("data_seed=2",)),
    "the scheme of the initial weights": ((), ("model/init=xavier",)),
    "a window beyond training but not evaluation": ((*WINDOW, "model.pattern.before=9"),
                                                    (*WINDOW, "model.pattern.before=11")),
    "a threshold that evaluation alone has": (EARLY, (*EARLY, "model.depth.threshold=0.5")),
    "statistics that evaluation alone reads": (BATCHNORM, (*BATCHNORM, "model.norm.momentum=0.3")),
}  # fmt: skip


@cache
def composed(*overrides: str) -> dict[str, Any]:
    return composer.compose([*TINY, *overrides])


@pytest.mark.parametrize("name", DEAD)
def test_settings_that_do_nothing_here_train_the_same_model(name: str) -> None:
    one, other = (composed(*overrides) for overrides in DEAD[name])
    assert composer.trial_id(one) != composer.trial_id(other), "they would be two trials"
    assert composer.same_training(one, other)


@pytest.mark.parametrize("name", ALIVE)
def test_settings_that_act_later_or_rarely_train_another_model(name: str) -> None:
    one, other = (composed(*overrides) for overrides in ALIVE[name])
    assert not composer.same_training(one, other)
    assert composer.same_training(one, one) and composer.same_training(other, other), "both can be observed"


def test_of_a_model_that_cannot_be_run_here_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> str:
        raise RuntimeError("no memory")

    monkeypatch.setattr("swapformer.study.config.same_training.STAGES", (broken,))
    monkeypatch.setattr("swapformer.study.config.same_training._KNOWN", {})
    assert composer.same_training(composed(), composed()) is None


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        (0, "a schedule that differs at the end"),
        (1, "weight decay"),
        (3, "a clip that trained weights may reach"),
        (3, "a window beyond training but not evaluation"),
    ],
)
def test_without_one_of_its_stages_the_law_would_refuse_a_change_that_acts(
    stage: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = STAGES[:stage] + STAGES[stage + 1 :]
    monkeypatch.setattr("swapformer.study.config.same_training.STAGES", left)
    monkeypatch.setattr("swapformer.study.config.same_training._KNOWN", {})
    one, other = (composed(*overrides) for overrides in ALIVE[name])
    assert composer.same_training(one, other)

"""A store with one small finished study, which hostile commands are tried on."""

from __future__ import annotations

from pathlib import Path

import yaml

from evidence.fuzz.judge import WORKED, run
from swapformer.results.store import Store
from swapformer.study.expand import expand
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import execute
from swapformer.study.spec import load

SMALL = (
    *("task=copy", "task.lengths=[2,4]", "task.eval_lengths=[6]", "task.batch_size=4", "model.num_layers=1"),
    *("model.d_model=16", "model.num_heads=2", "budget.steps=3", "schedule.warmup_steps=0"),
    *("eval.batches=1", "eval.final_batches=1", "eval.every=3", "log_every=1", "checkpoint_every=3"),
)
"""Overrides that make a trial of half a second."""
NAME, FILE = "rates", "rates.yaml"
STUDY = {
    "question": "Does the learning rate matter?",
    "baseline": "low",
    "arms": {"low": ["optim.lr=0.001"], "high": ["optim.lr=0.01"]},
    "overrides": [*SMALL, "probes=head_similarity"],
    "seeds": 2,
    "metrics": ["val/loss", "probe/head_similarity"],
    "claims": [{"text": "high is better", "better": {"arm": "high", "than": "low", "metric": "val/loss", "margin": 0}}],
}
"""What the study file says."""


def make(folder: Path) -> list[str]:
    """Put the study and its store into a folder; the ids of its trials. Raises RuntimeError if it does not finish."""
    (folder / FILE).write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    store = Store(folder / "runs")
    trials = expand(load(str(folder / FILE))).trials
    for trial in trials:  # in this process: the study finds them
        execute(trial, store, current_provenance())
    if (found := run(["study", FILE, "--json"], folder)).kind != WORKED:
        raise RuntimeError(f"the study that is to be damaged did not finish: {found.message}")
    return [trial.id for trial in trials]

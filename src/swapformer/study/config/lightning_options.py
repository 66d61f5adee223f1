"""Options of Lightning and of older versions, with what to say instead. No torch: errors must come at once."""

from __future__ import annotations

from collections.abc import Mapping

_EPOCHS = "training counts optimiser steps; say budget.steps=…, budget.tokens=… or budget.flops=…"
_EVALUATION = "every trial evaluates alike; say eval.every=…, eval.batches=… and eval.final_batches=…"
_DEVICES = "say trainer.devices=… with trainer.strategy=ddp or fsdp"

TRAINER: Mapping[str, str] = {
    "num_nodes": f"say trainer.nodes=… (docs/guides/launchers.md); {_DEVICES}",
    "logger": "what trials leave is shown by a process beside them; say logger=csv, tensorboard, wandb or lightning",
    "callbacks": "callbacks have a group of their own; say callbacks=NAME",
    "fast_dev_run": "say scale=smoke of a study, or budget.steps=4 eval.every=2 schedule.warmup_steps=1 of a trial",
    **dict.fromkeys(("max_epochs", "min_epochs", "max_steps", "min_steps", "max_time"), _EPOCHS),
    "limit_train_batches": _EPOCHS,
    **dict.fromkeys(("limit_val_batches", "limit_test_batches", "limit_predict_batches"), _EVALUATION),
    **dict.fromkeys(("val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps"), _EVALUATION),
    "overfit_batches": "batches are a function of (data_seed, step); for few sequences give a small text",
    "log_every_n_steps": "say log_every=…",
    "enable_checkpointing": "a trial keeps its last checkpoint, to resume from; say checkpoint_every=…",
    "enable_progress_bar": "there is a bar where there is a terminal, and none in a log",
    "enable_model_summary": "say swapformer cost OVERRIDES, which counts parameters by role, operations and bytes",
    "benchmark": "kernels that are chosen by timing differ from run to run, and a trial could not be repeated",
    "inference_mode": "evaluation takes no gradients already",
    "use_distributed_sampler": "batches are a function of (data_seed, step) on any number of devices",
    "sync_batchnorm": "a norm over the batch takes trainer.devices=1",
    "reload_dataloaders_every_n_epochs": "batches are a function of (data_seed, step), and there are no epochs",
    "barebones": "nothing but what a trial needs is on already",
    "plugins": "precision and devices are chosen by trainer.precision, trainer.devices and trainer.strategy",
    "default_root_dir": "say runs_dir=…",
    "enable_autolog_hparams": "the whole configuration is kept with every trial",
    "model_registry": "a trial's weights are its checkpoint; swapformer export writes them for transformers",
}
"""Arguments of `lightning.Trainer` that a trial does not take, with what to say instead: they would make it another one
than its id says, or reach into the store."""

TOP: Mapping[str, str] = dict.fromkeys(
    ("ckpt_path", "resume", "resume_from_checkpoint"),
    "a killed or interrupted trial goes on from its last checkpoint by itself, under the same command; to start from "
    "trained weights say init_from=TRIAL or init_from=FILE.safetensors",
)
"""Keys that scripts around Lightning's trainer often have, and what is said instead."""


_LOGGERS = "say logger=lightning and its class, as docs/guides/loggers.md shows"

GONE: Mapping[str, str] = {
    "trainer.fold": "trials run side by side; say --slots N, or --slots-per-gpu N on a GPU",
    "trainer.graph": "say trainer.compile=reduce-overhead, torch's own way to replay CUDA graphs",
    "trainer.heartbeat": "a rank that dies ends its trial at once; for one that hangs say --time-limit",
    "budget.branch": "every trial trains from its first step; schedule=wsd stays",
    "eval/average": "say callbacks=last or callbacks=ema",
    "logger/trackio": _LOGGERS,
    "logger/mlflow": _LOGGERS,
}
"""Keys and options that an older version had, with what to say now."""


def instead_of(node: str, key: str) -> str | None:
    """Advice for a key of Lightning's, or one that is gone, in a node (empty: at the top); else None."""
    return {"trainer": TRAINER, "": TOP}.get(node, {}).get(key) or GONE.get(f"{node}.{key}")

"""Mirrors of trials on other services, such as Weights & Biases.

A mirror reads what trials leave in the store, in a separate process: it can neither stop nor slow a training. The
files are its queue: what could not be sent today is still in them tomorrow.
"""

from swapformer.mirror.base import Destination, Run, RunInfo
from swapformer.mirror.lightning_loggers import LightningLogger
from swapformer.mirror.wandb_runs import WandB

__all__ = ["Destination", "LightningLogger", "Run", "RunInfo", "WandB"]

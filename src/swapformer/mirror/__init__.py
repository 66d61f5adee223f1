"""A mirror of trials elsewhere. It reads what trials leave in the store, in a process of its own: it can neither stop
nor slow a training, and what it shows is what the files say. The files are the queue: what could not be sent today is
still in them tomorrow.
"""

from swapformer.mirror.base import Destination, Page, Run
from swapformer.mirror.wandb_runs import WandB

__all__ = ["Destination", "Page", "Run", "WandB"]

"""A LightningModule with its own loop, as an arm of a study: `swapformer study study.yaml` in this folder.

A network learns which of two numbers is the larger. The study compares two widths. All that the script does for it is
to take its settings, its seed and two folders from the command line, and to write its metrics.
"""

import argparse
import json
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

SIZE = 23


class Larger(lightning.LightningModule):
    def __init__(self, width: int, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.table = nn.Embedding(SIZE, width)
        self.net = nn.Sequential(nn.Linear(2 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, SIZE))
        self.losses: dict[int, float] = {}

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        pairs, larger = batch
        return functional.cross_entropy(self.net(self.table(pairs).flatten(1)), larger)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        self.losses[self.global_step] = self.loss(batch).item()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, kind in {"width": int, "lr": float, "epochs": int, "seed": int, "out": Path, "checkpoint": Path}.items():
        parser.add_argument(f"--{name}", type=kind, required=True)
    given = parser.parse_args()
    lightning.seed_everything(given.seed)
    pairs = torch.cartesian_prod(torch.arange(SIZE), torch.arange(SIZE))
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0))  # one split for every seed
    data = TensorDataset(pairs[order], pairs[order].max(1).values)
    train, held = torch.utils.data.random_split(data, [0.9, 0.1], torch.Generator().manual_seed(0))
    module, last = Larger(given.width, given.lr), given.checkpoint / "last.ckpt"
    trainer = lightning.Trainer(
        max_epochs=given.epochs,
        accelerator="cpu",
        logger=False,
        callbacks=[ModelCheckpoint(given.checkpoint, save_last=True)],
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(
        module,
        DataLoader(train, batch_size=32, shuffle=True),
        DataLoader(held, batch_size=len(held)),
        ckpt_path=last if last.exists() else None,
    )
    rows = [f"{step},{loss}" for step, loss in module.losses.items()]
    (given.out / "metrics.csv").write_text("\n".join(["step,val/loss", *rows]) + "\n")
    final = {
        "val/loss": module.losses[max(module.losses)],
        "parameters/total": sum(p.numel() for p in module.parameters()),
    }
    (given.out / "metrics.json").write_text(json.dumps(final))


if __name__ == "__main__":
    main()

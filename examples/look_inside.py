# %% [markdown]
# # Look into a trained model
#
# Which heads does a model need to copy? Its attention weights are read at the places that every part names, and its
# heads are taken out one at a time.

# %%
import torch

import swapformer as sf
from swapformer.model import taps
from swapformer.training.inputs import model_inputs

STEPS = 400
BATCHES = 20  # of each evaluation after training
STUDY = {
    "question": "What does a copying model learn?",
    "baseline": "alibi",
    "arms": {"alibi": ["model/position=alibi"]},
    "overrides": [
        "task=copy",
        "model/size=nano",
        f"budget.steps={STEPS}",
        "schedule.warmup_steps=5",
        f"eval.final_batches={BATCHES}",
    ],
    "seeds": 1,
    "metrics": ["val/loss"],
}
sf.run_study(STUDY, ["runs_dir=runs"], name="look_inside")
trial = sf.read_records("look_inside", "runs")["trial"][0]
model, task, record, history = sf.load_trial(trial, "runs")
print(record.status, {name: round(value, 3) for name, value in record.metrics.items() if name == "val/loss"})

# %% [markdown]
# A forward pass on one batch, with the attention weights [B, H, Q, K] of every layer written down beside it:

# %%
batch = task.train_batch(0, 0)
inputs = model_inputs(batch)
with torch.no_grad(), taps.record(model, "blocks.*.attn.hook_pattern") as seen:
    logits = model(*inputs)

# %% [markdown]
# How far back each head looks on average, Σ_k pattern(q, k) · (q − k), over all queries of the batch:

# %%
reach = {}
for place, pattern in seen.items():
    q, k = (torch.arange(size) for size in pattern.shape[-2:])
    reach[place] = (pattern * (q[:, None] - k)).sum(-1).mean((0, 2))
    print(place, [round(float(value), 2) for value in reach[place]])

# %% [markdown]
# What is watched may also be overwritten. Each head in turn writes nothing, and its effect is how far the model's
# predictions move: the mean Kullback–Leibler divergence from the whole model's, in nats.

# %%
whole = logits.log_softmax(-1)


def effect(layer: int, head: int) -> float:
    """How far the predictions move without one head."""

    def silenced(z: torch.Tensor) -> torch.Tensor:  # [B, Q, H, E]
        return z * (torch.arange(z.shape[2]) != head)[:, None]

    with torch.no_grad(), taps.replace(model, {f"blocks.{layer}.attn.hook_z": silenced}):
        without = model(*inputs).log_softmax(-1)
    return float((whole.exp() * (whole - without)).sum(-1).mean())


effects = torch.tensor(
    [[effect(layer, head) for head in range(pattern.shape[1])] for layer, pattern in enumerate(seen.values())]
)
print(effects.numpy().round(4))
layer, head = divmod(int(effects.argmax()), effects.shape[1])
print(f"most needed: head {head} of layer {layer}")

# %% [markdown]
# # Swap a part
#
# Which position encoding does copying need? The four models of this notebook differ in one part, start from the same
# weights wherever they share them, and see the same batches in the same order.

# %%
import swapformer as sf

STEPS = 400
BATCHES = 20  # of each evaluation after training
SEEDS = 3
ENCODINGS = ["none", "learned", "rope", "alibi"]

# %% [markdown]
# A part is chosen by its name. `compose` refuses what does not go together before anything is trained, and `build`
# gives the model as the seed draws it.

# %%
for name in ENCODINGS:
    model, task = sf.build(["task=copy", "model/size=nano", f"model/position={name}"])
    print(f"{name:8} {sum(weight.numel() for weight in model.parameters()):7} weights")

# %% [markdown]
# A study asks a question of them: arms that are named, a claim with a margin, and seeds. Trials that are in the store
# already are not trained again, so this cell takes no time when it is run twice.

# %%
STUDY = {
    "question": "Which position encoding does copying need?",
    "baseline": "none",
    "arms": {name: [f"model/position={name}"] for name in ENCODINGS},
    "overrides": [
        "task=copy",
        "model/size=nano",
        f"budget.steps={STEPS}",
        "schedule.warmup_steps=5",
        f"eval.final_batches={BATCHES}",
    ],
    "seeds": SEEDS,
    "claims": [
        {
            "text": f"{name} copies better than no encoding",
            "better": {"arm": name, "than": "none", "metric": "val/loss", "margin": 0.05},
        }
        for name in ENCODINGS[1:]
    ],
}
found = sf.run_study(STUDY, ["runs_dir=runs"], name="swap_a_part")

# %% [markdown]
# Each claim is supported, refuted or undecided, by intervals that are corrected for the number of claims.

# %%
for verdict in found.report.verdicts:
    print(verdict.claim.text, "→", verdict.outcome)
print(found.report.directory / "report.html")

# %% [markdown]
# The same numbers as a data frame, one row for each trial and metric:

# %%
frame = sf.read_records("swap_a_part", "runs")
print(frame[frame["metric"] == "val/loss"].pivot_table(index="arm", columns="seed", values="value").round(3))

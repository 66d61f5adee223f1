# %% [markdown]
# # A figure for a paper
#
# The published results of a study, as a figure of one's own: how much each number of heads differs from eight of them.
# `swapformer report STUDY --latex --pdf` writes the report's own figures and tables; this is for all that they are not.

# %%
import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from scipy import stats

import swapformer as sf
from swapformer.paths import experiments_dir

BASELINE = "h8"
METRIC = "val/loss"

# %% [markdown]
# One row for each trial and metric. A trial without a result keeps a row, so ask for it before averaging.

# %%
frame = sf.read_records(experiments_dir() / "04_head_count" / "width")
assert set(frame["status"]) == {"finished"}
losses = frame[frame["metric"] == METRIC].pivot(index="seed", columns="arm", values="value")

# %% [markdown]
# Trials of one seed share their batches, and their weights wherever they can, so arms are compared within a seed: the
# mean difference d, and d ± t(.975, n − 1) · s / √n. These intervals are of one comparison each. The study's verdicts
# are corrected for all of its claims; cite those.

# %%
names = sorted(losses.columns, key=lambda name: int(name.removeprefix("h")))
differences = losses[names].sub(losses[BASELINE], axis=0).drop(columns=BASELINE)
means = differences.mean()
halves = stats.t.ppf(0.975, len(differences) - 1) * differences.sem()
for name in differences:
    print(f"{name}: {means[name]:+.5f} ± {halves[name]:.5f}")

# %% [markdown]
# A column of a two-column paper is 3.3 inches wide. Type 42 embeds the fonts, which most venues demand.

# %%
with plt.rc_context({"pdf.fonttype": 42, "font.size": 8}):
    figure, axes = plt.subplots(figsize=(3.3, 2.2), layout="constrained")
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.errorbar(differences.columns.str.removeprefix("h"), means, yerr=halves, fmt="o", markersize=3, capsize=2)
    axes.set(xlabel="heads", ylabel="loss less that of 8 heads (nats)")
    figure.savefig("heads.pdf", metadata={"CreationDate": None})
    figure.savefig("heads.png", dpi=200)

"""What must not drift: the losses of tiny trials, and the weights that each attention trains to.

The numbers come from this program itself, of the commit that last refreshed them:
`python -m pytest tests/test_golden.py --refresh-golden`. They prove nothing right; they show what changed.
"""

from __future__ import annotations

import csv
import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import pytest
import torch

from swapformer.paths import conf_dir
from swapformer.study.config.compose import compose
from swapformer.study.config.identity import RESULTS_EPOCH
from swapformer.training.fit import fit
from swapformer.training.weights import restore

GOLDEN = Path(__file__).parent / "golden"
LOSSES = GOLDEN / "losses.json"
REFRESH = "`python -m pytest tests/test_golden.py --refresh-golden`"

TOLERANCE = 2e-5
"""Relative difference that another processor's rounding may explain after so few steps in float32.

Other vector instructions (ATEN_CPU_CAPABILITY) move these losses by less than 1e-6, GELU's tanh form by 3e-5.
"""

SMALL = [
    *("model.d_model=32", "model.num_layers=2", "model.num_heads=4", "task.batch_size=8", "task.eval_batch_size=8"),
    *("budget.steps=16", "schedule.warmup_steps=4", "eval.every=8", "eval.batches=1", "eval.final_batches=2"),
    *("log_every=4", "divergence=100", "optim.lr=5e-3", "seed=3"),
]  # and weights drawn wide, so that a change anywhere shows in the loss
TRIALS = {
    "copy_alibi_post": ["task=copy", "task.lengths=[2,6]", "task.eval_lengths=[8]", "model/position=alibi",
                        "model/placement=post", "model/activation=relu", "model/init=xavier", "model.init.gain=2"],
    "addition_t5_glu": ["task=addition", "model/position=t5", "model/ffn=glu", "model/activation=silu",
                        "model/norm=rmsnorm", "model/residual=scaled", "model.bias=false", "model.init.std=0.3",
                        "schedule=linear"],
    "text_learned_gqa_dropout": ["task=text", "task.split=[0.9,0.05,0.05]", "task.block=24",
                                 "task.eval_lengths=[32]", "model/position=learned", "model/attention=gqa",
                                 "model.dropout=0.1", "model.init.std=0.2", "trainer.accumulate_grad_batches=2"],
    "reversed_sinusoidal_parallel": ["task=addition_reversed", "model/position=sinusoidal", "model/block=parallel",
                                     "model/placement=sandwich", "model/residual=rezero", "model/init=torch",
                                     "model.topology.tie_embeddings=false", "schedule=constant"],
    "copy_rope_window_layers": ["task=copy_repeat", "task.lengths=[2,6]", "task.eval_lengths=[]",
                                "model/position=rope_interleaved", "model/kernel=reference", "model/init=normal",
                                "model.init.std=0.2", "model/placement=inside",
                                'model.layers=[{at: 0, pattern: window, num_heads: 2}]'],
}  # fmt: skip


@pytest.fixture
def refresh(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--refresh-golden"))


def losses(name: str, place: Path) -> dict[str, float]:
    """Every loss that a golden trial measures: `step name` → value, and the final evaluation's."""
    overrides = [*SMALL, *TRIALS[name]]
    if "task=text" in overrides:
        text = place / "text.txt"
        words = [f"{(7 * n * n + 3 * n) % 97} bottles of {'ale' if n % 3 else 'beer'};" for n in range(1500)]
        text.write_text("\n".join(words), encoding="utf-8")
        overrides += ["task/source=files", f"task.source.path={text}"]
    outcome = fit(compose(overrides), place)
    assert outcome.status == "finished", outcome.reason
    with (place / "metrics.csv").open(newline="") as file:
        found = {f"{row['step']} {row['name']}": float(row["value"]) for row in csv.DictReader(file)}
    found |= {f"final {metric}": value for metric, value in outcome.metrics.items()}
    return {key: value for key, value in sorted(found.items()) if "loss" in key and "_se" not in key}


def moved(found: dict[str, float], golden: dict[str, float]) -> list[str]:
    """What differs between the losses found and the golden ones, one line each."""
    return [
        f"{key}: {golden.get(key)} → {found.get(key)}"
        for key in sorted(found.keys() | golden.keys())
        if found.get(key) != pytest.approx(golden.get(key), rel=TOLERANCE)
    ]


@pytest.mark.parametrize("name", TRIALS)
def test_a_tiny_trials_losses_are_the_golden_ones(
    name: str, refresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of RESULTS_EPOCH: numbers that move without it would be mixed with older ones in the store."""
    monkeypatch.setenv("SWAPFORMER_CACHE", str(tmp_path / "cache"))
    golden = json.loads(LOSSES.read_text()) if LOSSES.exists() else {"results_epoch": 0, "losses": {}}
    found = losses(name, tmp_path)
    known = golden["losses"].get(name)
    changed = [] if known is None else moved(found, known)
    if refresh and (not changed or golden["results_epoch"] < RESULTS_EPOCH):
        known, changed = found, []
        fresh = {"results_epoch": golden["results_epoch"], "losses": {**golden["losses"], name: found}}
        LOSSES.write_text(json.dumps(fresh, indent=1, sort_keys=True) + "\n")
    assert known is not None, f"{name} has no golden losses yet; write them with {REFRESH}"
    assert not changed, "\n".join(
        ["losses moved: raise RESULTS_EPOCH and refresh, or find what changed", f"({REFRESH})", *changed]
    )


def test_the_golden_losses_are_of_this_results_epoch(refresh: bool) -> None:
    """Runs after the trials, and closes a refresh."""
    golden = json.loads(LOSSES.read_text())
    if refresh:
        golden = {"results_epoch": RESULTS_EPOCH, "losses": {name: golden["losses"][name] for name in TRIALS}}
        LOSSES.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    assert golden["results_epoch"] == RESULTS_EPOCH, f"RESULTS_EPOCH was raised: refresh the losses, {REFRESH}"
    assert set(golden["losses"]) == set(TRIALS)


ATTENTION = GOLDEN / "attention.json"
KIND = ("cpu family", "model", "model name", "stepping")
"""Lines of Linux that say which processor this is; libraries choose how they multiply by it."""
NOT_CAUSAL = ("linformer", "nystrom")
THREE_STEPS = [
    *("model.d_model=32", "model.num_layers=2", "model.num_heads=4", "task.batch_size=4", "budget.steps=3"),
    *("schedule.warmup_steps=1", "eval.batches=1", "eval.final_batches=1", "log_every=1", "optim.lr=5e-3", "seed=3"),
    *("model.init.std=0.2", "model.dropout=0.1"),
]
CAUSAL = ["task=copy", "task.lengths=[2,6]", "task.eval_lengths=[8]"]
WHOLE = ["task=sunspots", "model/topology=encoder", "model/pattern=full"]


def processor() -> str:
    """What decides the last bits of a sum: equal ones must give equal bits."""
    described = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else platform.machine()
    kind = [line.partition(":")[2].strip() for line in described.splitlines() if line.startswith(KIND)]
    return f"{' '.join(kind[: len(KIND)])} {torch.backends.cpu.get_cpu_capability()} torch {torch.__version__}"


def attention_run(option: str, place: Path) -> dict[str, Any]:
    """Three steps of a tiny trial with an attention: its losses, and of each weight size and digest at the end."""
    overrides = [*THREE_STEPS, f"model/attention={option}", *(WHOLE if option in NOT_CAUSAL else CAUSAL)]
    config = compose(overrides)
    outcome = fit(config, place)
    assert outcome.status == "finished", outcome.reason
    with (place / "metrics.csv").open(newline="") as file:
        losses = {row["step"]: float(row["value"]) for row in csv.DictReader(file) if row["name"] == "train/loss"}
    weights = {name: held.detach() for name, held in restore(config, place)[1].named_parameters()}
    return {
        "losses": losses,
        "weights": {
            name: [float(held.double().abs().sum()), hashlib.sha256(held.numpy().tobytes()).hexdigest()[:16]]
            for name, held in sorted(weights.items())
        },
    }


@pytest.mark.parametrize("option", sorted(path.stem for path in (conf_dir() / "model" / "attention").glob("*.yaml")))
def test_an_attention_trains_to_the_golden_weights(
    option: str, refresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit-equal on the processor and torch that the file names; within rounding on others."""
    monkeypatch.setenv("SWAPFORMER_CACHE", str(tmp_path / "cache"))
    golden = json.loads(ATTENTION.read_text()) if ATTENTION.exists() else {"processor": processor(), "options": {}}
    found = attention_run(option, tmp_path)
    if refresh and option not in golden["options"]:
        golden["options"][option] = found
        ATTENTION.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    known = golden["options"].get(option)
    assert known is not None, f"{option} has no golden weights yet; write them with {REFRESH}"
    if processor() == golden["processor"]:
        assert found == known
    else:
        assert found["losses"] == pytest.approx(known["losses"], rel=TOLERANCE)
        assert found["weights"].keys() == known["weights"].keys()
        # A bias of all keys changes no softmax: its gradient is rounding, of which Adam makes steps of full size.
        names = [name for name in known["weights"] if not name.endswith("key.bias")]
        sums = {name: known["weights"][name][0] for name in names}
        assert {name: found["weights"][name][0] for name in names} == pytest.approx(sums, rel=3e-4)

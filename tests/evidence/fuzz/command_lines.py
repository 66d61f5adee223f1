"""Command lines that no one should be let through with: typos, sizes that nobody has, nesting without end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evidence.fuzz.template import SMALL

DEEP = "[" * 3000 + "]" * 3000
HUGE = "1" + "0" * 22
ESCAPE = "\x1b[31mred\u202e"

_OVERRIDES = (
    *("model.d_model=", "=3", "a=b=c=", "optim.lr", "optim.lr=[", "optim.lr={", "model/position="),
    *("model/position=ropee", "model/positon=rope", "modle.d_model=3", "~schedule", "~model", "+model.d_model=16",
      "++model.d_model={}"),
    *("runs_dir=null", "runs_dir=", "runs_dir=[1]", "seed=null", "seed=-1", "seed=1.5", "seed=x", f"seed={HUGE}"),
    *("budget.tokens=inf", "budget.tokens=nan", "budget.steps=0", "budget.steps=-1", f"budget.steps={HUGE}"),
    *("optim.betas=0.9", "optim.betas=[0.9]", "optim.betas=[0.9,2]", "optim.betas=[a,b]", "optim=3", "optim=null"),
    *("model=3", "model=null", "task=3", "task=null", "task=[copy]", "task={}", "trainer=3", "trainer.threads=99999"),
    *("trainer.threads=0", "trainer.devices=0", "trainer.accelerator=tpu", "trainer.precision=3", "allow=future"),
    *("allow=[nothing]", "allow=3", f"model.layers={DEEP}", "model.layers=[{at: 0, pattern: ../norm/rmsnorm}]"),
    *("model.layers=[{at: 0, pattern: window, before: 3}]", "model.layers=[{}]", "model.layers=[3]", "model.layers=3"),
    *("model.layers=[{at: 9, norm: rmsnorm}]", "model.layers=[{at: x, norm: rmsnorm}]", "model.layers=[{at: -9}]"),
    *("model.layers=[{at: 0, norm: [rmsnorm]}]", "model.layers=[{at: 0, norm: null}]", "model.num_layers=100000"),
    *("model.d_model=100000000", "model.num_heads=7", "model.num_heads='4'", 'model.num_heads="4"',
      "task.batch_size=100000000"),
    *("task.lengths=[2,100000000]", "task.lengths=[4,2]", "task.lengths=3", "task.lengths=[]", "task.lengths=[a,b]"),
    *("task.lengths=[2,3,4]", "task.eval_lengths=3", "task.eval_lengths=[a]", "task.eval_lengths=[-1]",
      "task.symbols=0"),
    *("init_from=nothing", "init_from=3", "init_from=[1]", "init_from=0123456789abcdef", "init_from=/dev/null"),
    *("init_from=x.safetensors", "probes=nothing", "probes.x=3", "+probes.x._target_=os.system", "logger=nothing"),
    *("model.position._target_=os.system", "model.position._target_=builtins.eval", "model.position._target_=null"),
    *("logger.tags=['${oc.env:HOME}']", "++model.dropout='${oc.env:HOME}'", "++model.dropout=${nothing}"),
    *("hydra.searchpath=[pkg://os]", "schedule.warmup_steps=4", "eval.every=0", "checkpoint_every=0", "log_every=0"),
    *("divergence=nan", "divergence=0", "trainer.gradient_clip_val=nan", "optim.lr=inf"),
    *("optim.lr=true", "optim.lr='0.1'", "optim.lr=[0.1]", "optim.lr={a: 1}", "optim.freeze=[nothing]",
      "optim.freeze=3"),
    *("optim.layer_decay=0", "model.max_len=1", "model.head_dim=3", "model.dropout=1.5", "model.bias=maybe", ESCAPE),
    *(f"model/position={ESCAPE}", f"seed={ESCAPE}", f"task.symbols={'9' * 5000}", f"model/position={'x' * 5000}"),
    *("model/extension=[nothing]", "model/extension=nothing", "model/extension={}", "model/size=[nano,tiny]"),
)  # fmt: skip
"""Each is refused by `train`."""

_STUDY = (
    *("seeds={", "seeds=", "seeds=0", "seeds=-1", "seeds=[1,1]", "seeds=[a]", "seeds=1000000000", f"seeds={HUGE}"),
    *("seeds=null", "seeds=true", "seeds=1.5", "seeds=nan", "seeds={a: 1}", f"seeds={DEEP}", "scale=nothing", "scale="),
    *("scale=[smoke]", "seed=3", "arms=3", "optim.lr=[", "~optim", "runs_dir=null", "model.d_model=nan"),
    *("hydra.launcher.slots=0", "hydra.launcher.slots=x", "hydra/launcher=nothing", "hydra.launcher.nothing=3"),
)  # fmt: skip

LINES: Mapping[str, Sequence[Sequence[str]]] = {
    "verbs": [
        [], ["trian"], ["--nothing"], ["study"], ["report"], ["sample"], ["export"], ["import"], ["check"],
        ["show"], ["train", "=3"], ["train", "--nothing"], ["train", "-c"], ["train", "-c", "nothing"],
        ["train", "-cd"], ["train", "-cn", "nothing"], ["study", "nothing"], ["study", "nothing.yaml"], ["study", ""],
        ["study", "/"], ["study", "/dev/null"], ["study", "/dev/zero.yaml"], ["report", "nothing"], ["report", ""],
        ["report", "a", "b", "c"], ["report", "a", "a"], ["status", "nothing"], ["status", "a", "b"], ["status", "x=3"],
        ["status", "runs_dir=nowhere"], ["trials", "0123"], ["trials", "runs_dir=nowhere"], ["trials", "--status", "x"],
        ["trials", "--arm", "x", "runs_dir=/dev"], ["trials", "compare"], ["trials", "compare", "0"],
        ["trials", "prune", "--nothing"], ["list", "nothing"], ["list", "--config-dir", "nowhere"],
        ["dashboard"], ["dashboard", "nothing"],
        ["sample", "0123", "--prompt", ""], ["sample", "0123", "--prompt", "a", "--tokens", "x"],
        ["sample", "0123", "--prompt", "a", "--tokens", "0"],
        ["sample", "0123", "--prompt", "a", "--temperature", "nan"],
        ["export", "0123", "out", "--format", "gpt2"], ["export", "0123", "out", "--format", "nothing"],
        ["import", "nowhere", "x.safetensors"], ["import", "/dev/null", "x.safetensors"], ["cost", "nothing"],
        ["show", "nothing"], ["check", "nothing"], ["check", "os.system"],
        ["baseline", "--nothing"], ["status", "\x1b[31m"], ["study", "x" * 5000], ["study", "\0.yaml"],
        ["trials", "x" * 5000], ["list", "x" * 5000],
    ],
    "overrides": [["train", *SMALL, override] for override in _OVERRIDES],
    "studies": [["study", "04_head_count/width", "scale=smoke", override] for override in _STUDY],
}  # fmt: skip
"""What is refused, in words of a shell; run where there is no store."""

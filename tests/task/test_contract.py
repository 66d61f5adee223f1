"""What every task gives models, training and records; and what a task of one's own is told that does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import walks
from swapformer.errors import UsageError
from swapformer.study.config.compose import compose
from swapformer.task.contract import is_own, require_attributes, require_data
from task.test_purity import YAMLS, build

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "your_own.md"
WALK = walks.files(walks.section(GUIDE, "A task"))
DELAY = WALK["mine/delay.py"]
MADE = "self.tokens, self.vocab_size = tuple(map(str, range(symbols))), symbols"
RETURNED = "        return Batch(inputs=inputs, targets=targets)\n"
SETS = '[EvaluationSet("", None, partial(self.batch, split))]'


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: path.stem)
def test_every_task_keeps_the_contract(path: Path) -> None:
    task = build(path)
    assert not is_own(task)
    require_attributes(task)
    require_data(task)


FAULTS: dict[str, tuple[str, str, str]] = {
    "no symbols": (MADE, "self.tokens = ()", "must set `vocab_size`, the number of token ids, but does not; such as"),
    "not written": (MADE, "self.vocab_size = symbols", "must set `tokens`, how each id is written"),
    "fewer symbols": (MADE, f"{MADE} + 1", "`tokens` of .* must write each of its 9 ids .*, but has 8"),
    "no length": ("self.max_length = ", "", "must set `max_length`, the positions of the longest batch"),
    "no directions": ("    directions = directions_of(METRICS)\n", "", "must set `directions`, which way each metric"),
    "another direction": ("directions_of(METRICS)", "{'loss': 'lower'}", "whether lower or higher is better"),
    "no batch": (RETURNED, "", r"train_batch\(0, 0\) must give a Batch, but gives a NoneType; end"),
    "inputs of another type": ("Batch(inputs=inputs,", "Batch(inputs=inputs.int(),", "must be int64 .*, but are int32"),
    "inputs too long": ("self.max_length = ", "self.max_length = 5; ", "at most max_length=5 positions, but have 24"),
    "ids too large": ("torch.randint(self.symbols,", "torch.randint(self.symbols, 2 * self.symbols,", "from 8 to 15"),
    "targets of another type": ("(inputs, IGNORE)", "(inputs, IGNORE).float()", "must be int64 .*, but are float32"),
    "targets of another shape": ("targets=targets)", "targets=targets[:, 1:])", r"int64 \[32, 24\] .* \[32, 23\]"),
    "targets too large": ("inputs[:, : -self.delay]", "inputs[:, : -self.delay] + 1", "from 0 to 7, but reach from"),
    "no targets": ("targets[:, self.delay :] = inputs[:, : -self.delay]", "pass", "must have a target that is not"),
    "another each time": ("generator=stream(*key)", "", "must give the same batch whenever it is asked, but gave two"),
    "batches of two sizes": ("(self.batch_size, self", "(self.batch_size + key[-1], self", "gives 32 and 33"),
    "other rows alone": (
        "    def fingerprint",
        "    def train_rows(self, seed, step, *rows):\n        return self.batch(0)\n\n    def fingerprint",
        "must give the sequences that train_batch has there, but gives others",
    ),
    "no sets": (SETS, "[]", r"evaluation\(\"val\"\) must begin with a set named \"\", but its sets are none"),
    "another name first": (SETS, SETS.replace('""', '"@9"'), "named \"\", but its sets are '@9'"),
    "no loss": ('("loss", "loss_se", "accuracy"', '("accuracy"', r"metrics\(\) must have `loss`, but has accuracy"),
    "no hash": ("hashlib.sha256(repr(settings).encode()).hexdigest()", "None", "must be a text such as a SHA-256"),
}  # fmt: skip
"""What is wrong with a task → the walk's text, what stands in its place, and what is said."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_task_of_ones_own_is_told_what_is_wrong(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, message = FAULTS[fault]
    assert DELAY.count(right) == 1
    module = f"faulty_{re.sub('[^a-z]', '_', fault)}"
    conf = WALK["conf/task/delay.yaml"].replace("mine.delay", module)
    walks.write(tmp_path, {f"{module}.py": DELAY.replace(right, wrong), "conf/task/delay.yaml": conf})
    monkeypatch.setenv("SWAPFORMER_PACKAGES", module)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=message) as caught:
        compose([f"hydra.searchpath=[file://{tmp_path}/conf]", "task=delay"])
    assert module in str(caught.value)

"""The probe of position tables measures what the measurement does, and leaves the model as it is."""

from __future__ import annotations

import torch

from measure.conftest import TINY, measured, subject_of
from swapformer.probes.base import make_probe
from swapformer.study.config.compose import compose

TABLE = ("rows=96", "shifts=[1,8]")
LEARNED = ("model/position=learned", "model.max_len=96")


def test_a_probe_of_the_table_finds_what_the_measurement_does_and_leaves_the_model_in_its_precision() -> None:
    measurement = measured("measure=position_table", *(f"measure.{each}" for each in TABLE), *LEARNED)
    probed = ["probes=position_table", *(f"probes.position_table.{each}" for each in TABLE), *LEARNED]
    subject = subject_of(config := compose([*TINY, *probed]))
    probe = make_probe(config["probes"]["position_table"], config)
    found = probe.measure(subject.model, subject.task)
    assert found.metrics == {f"probe/{name}": value for name, value in measurement.metrics.items()}
    assert found.shapes.keys() == measurement.shapes.keys()
    assert {weight.dtype for weight in subject.model.parameters()} == {torch.float32}
    with torch.no_grad():
        for table in subject.model.stack.positions.parameters():
            table.copy_(torch.arange(len(table))[:, None] * table[:1])  # rows on a line are shifted by an offset
    assert probe.measure(subject.model, subject.task).metrics["probe/shift/free@8"] < 1e-6

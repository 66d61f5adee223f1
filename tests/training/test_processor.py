"""bfloat16 on a processor without instructions for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swapformer.errors import UsageError
from swapformer.study.config.compose import compose
from swapformer.training import processor
from swapformer.training.fit import fit
from swapformer.training.processor import require_bfloat16

AVX2 = "processor\t: 0\nmodel name\t: Some Processor\nflags\t\t: fpu avx avx2 fma\n"


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "CPUINFO", path)
    return path


def test_bfloat16_without_instructions_is_refused_before_anything_trains(described: Path, tmp_path: Path) -> None:
    described.write_text(AVX2)
    with pytest.raises(UsageError, match=r"Some Processor has none.* use trainer=cpu, or add allow="):
        fit(compose(["trainer=cpu_bf16", "task=copy"]), tmp_path / "trial")
    assert not (tmp_path / "trial").exists()


@pytest.mark.parametrize("overrides", [["trainer=cpu"], ["trainer=cpu_bf16", "allow=[bf16]"], ["trainer=gpu"]])
def test_what_does_not_need_them_or_is_allowed_passes(described: Path, overrides: list[str]) -> None:
    described.write_text(AVX2)
    require_bfloat16(compose([*overrides, "task=copy"]))


@pytest.mark.parametrize("flags", ["flags\t: avx512f avx512_bf16", "flags\t: amx_bf16", "Features\t: asimd bf16", ""])
def test_a_processor_that_has_them_or_says_nothing_passes(described: Path, flags: str) -> None:
    described.write_text(f"model name\t: Another\n{flags}\n")
    require_bfloat16(compose(["trainer=cpu_bf16", "task=copy"]))


def test_a_machine_that_describes_no_processor_passes(described: Path) -> None:
    require_bfloat16(compose(["trainer=cpu_bf16", "task=copy"]))

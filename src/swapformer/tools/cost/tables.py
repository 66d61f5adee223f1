"""What arms cost, as plain data and as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from swapformer.report import number_format as f
from swapformer.results.arms import arm_name
from swapformer.results.costs import Costs, Counted


@dataclass(frozen=True)
class Arm:
    """An arm in a condition, with the settings of the first of its trials that has any."""

    arm: str
    condition: str
    trial: str
    config: dict[str, Any]
    key: str

    @property
    def name(self) -> str:
        return arm_name(self.arm, self.condition)


def plain(arms: Sequence[Arm], costs: Costs) -> dict[str, Any]:
    def one(arm: Arm) -> dict[str, Any]:
        place = arm.arm, arm.condition
        measured = {hardware: found[place] for hardware, found in costs.measured.items() if place in found}
        return {
            "arm": arm.arm, "condition": arm.condition, "key": arm.key,
            "counted": asdict(costs.counted[place]) if place in costs.counted else None,
            "measured": {name: {**asdict(each), "step": each.step, "speed": each.speed}
                         for name, each in measured.items()},
        }  # fmt: skip

    return {"arms": [one(arm) for arm in arms]}


def tables(arms: Sequence[Arm], costs: Costs) -> list[str]:
    """What was counted, then what was measured on each machine."""

    def number(value: int | None, text: Callable[[float], str]) -> str:
        return f.DASH if value is None else text(value)

    counted = [("arm", "FLOP a step", "activations a step", "KV cache a sequence")]
    for arm in arms:
        known: Mapping[tuple[str, str], Counted] = costs.counted
        each = known.get((arm.arm, arm.condition), Counted(None, None, None))
        cells = number(each.flops, f.scaled), number(each.activations, f.size), number(each.kv_cache, f.size)
        counted.append((arm.name, *cells))
    found_tables = [_columns(counted)]
    for hardware, found in costs.measured.items():
        rows = [("arm", "step", "range over rounds", "tokens/s", "peak memory", "beyond libraries", "device")]
        for arm in arms:
            if (one := found.get((arm.arm, arm.condition))) is not None:
                span = f"{f.seconds(min(one.seconds))} – {f.seconds(max(one.seconds))}"
                memory = f.size(one.memory), f.size(one.memory - one.start), number(one.device, f.size)
                rows.append((arm.name, f.seconds(one.step), span, f.large(one.speed), *memory))
        found_tables.append(f"measured on {hardware}\n{_columns(rows)}")
    return found_tables


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}" for i, (cell, width) in enumerate(each))
        for each in (list(zip(row, widths, strict=True)) for row in rows)
    )

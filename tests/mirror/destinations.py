"""Places to mirror to that remember, fail or hang."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from mirror.readback import Curves
from swapformer.mirror import Destination, Run, RunInfo
from swapformer.mirror.base import ReportProblem, StudyResults
from swapformer.results.record import Record


class Memory(Destination):
    """Keeps what it is shown, and writes its pages into a `diary`; `failing` runs raise at their first row."""

    def __init__(self, *, failing: int = 0, hang: float = 0.0, patience: float = 1.0, diary: str | None = None) -> None:
        self.failing, self.hang, self.patience, self.diary = failing, hang, patience, diary
        self.pages: list[RunInfo] = []
        self.curves: Curves = {}
        self.pieces = 0
        self.endings: list[tuple[str, dict[str, float], list[str]]] = []

    @property
    def name(self) -> str:
        return "memory"

    def require(self) -> None:
        return

    def open(self, info: RunInfo, folder: Path, report_problem: ReportProblem) -> Run:
        time.sleep(self.hang)
        self.pages.append(info)
        if self.diary is not None:
            with Path(self.diary).open("a", encoding="utf-8") as file:
                file.write(f"{info.study}/{info.arm} with {info.condition}\n")
        return _MemoryRun(self)

    def show(self, results: StudyResults, folder: Path, report_problem: ReportProblem) -> None:
        return

    def close(self) -> None:
        return


class _MemoryRun(Run):
    def __init__(self, place: Memory) -> None:
        self.place = place

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self.place.failing:
            self.place.failing -= 1
            raise ConnectionError("gone")
        self.place.pieces += len(values)
        self.place.curves |= {(step, name): value for name, value in values.items()}

    def finish(self, record: Record, numbers: Mapping[str, float], pictures: Mapping[str, Path]) -> None:
        self.place.endings.append((record.status, dict(numbers), sorted(pictures)))

    def abandon(self) -> None:
        return

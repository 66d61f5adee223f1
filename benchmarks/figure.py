"""A number that was measured, with what was asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """What was measured.

    Attributes:
        name: of what.
        value: in `unit`.
        unit: of the value.
        target: what the project asks for, in words.
        met: whether it was.
    """

    name: str
    value: float
    unit: str
    target: str
    met: bool

    def line(self) -> str:
        """One line for people."""
        return f"{self.name}: {self.value:.3g} {self.unit}; asked: {self.target}: {'met' if self.met else 'missed'}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

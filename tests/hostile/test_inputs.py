"""Hostile settings and command lines: one line, status 2, and nothing stored, or it works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evidence.fuzz import command_lines, settings
from evidence.fuzz.judge import CLEAR, FAULTS, dry, run
from evidence.fuzz.settings import LARGE, NEVER, NUMBERS, Number


@pytest.fixture(scope="module", autouse=True)
def _composing() -> Iterator[None]:
    with settings.composing():
        yield


def wrong(setting: Number, way: str, folder: Path) -> str | None:
    """What is wrong with how a value is taken."""
    found = settings.attempt(setting, NUMBERS[way], folder)
    refused = way in NEVER and not (way == "10^23" and setting.key in LARGE)
    if found.kind in FAULTS or (refused and found.kind != CLEAR):
        return f"{setting} = {way}: {found.kind} {found.message}"
    return None


QUICK = ("nan", "10^23", "true")
"""The ways that every run tries; `make evidence` tries the others."""


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way in QUICK else pytest.mark.evidence) for way in NUMBERS]
)
def test_no_number_of_the_base_configuration_is_believed_when_it_is_none(way: str, tmp_path: Path) -> None:
    assert len(settings.base_settings()) > 30
    assert [said for setting in settings.base_settings() if (said := wrong(setting, way, tmp_path))] == []


@pytest.mark.evidence
def test_no_number_of_an_option_is_believed_when_it_is_none(tmp_path: Path) -> None:
    """Each number of each option with one of the wrong values; the random form tries all of them."""
    ways = list(NUMBERS)
    assert len(settings.option_settings()) > 250
    found = [
        said
        for index, setting in enumerate(settings.option_settings())
        if (said := wrong(setting, ways[index % len(ways)], tmp_path))
    ]
    assert found == []


def test_a_check_that_believes_every_number_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "check", lambda config: None)
    monkeypatch.setattr(settings, "finalise", lambda composed: {})
    assert wrong(Number("optim.lr"), "nan", tmp_path) is not None
    assert wrong(Number("optim.lr"), "0", tmp_path) is None


@pytest.mark.parametrize("group", command_lines.LINES)
def test_a_hostile_command_line_is_refused_in_one_line(group: str, tmp_path: Path) -> None:
    wrong = []
    for line in command_lines.LINES[group]:
        with dry():
            found = run(line, tmp_path)
        if found.kind != CLEAR or (tmp_path / "runs").exists():
            wrong.append((line, found))
    assert wrong == []

"""Names of what is measured at moments: with the moment, without it, and by family."""

from __future__ import annotations

from typing import Any

import pytest

from swapformer.results.artifacts import probe_keys, settings_key
from swapformer.results.moments import END, INIT, Moment, at_moment, family_of, moment_text, split_moment


@pytest.mark.parametrize(
    ("name", "moment", "whole", "family", "n"),
    [
        ("probe/x", END, "probe/x", "probe/x", ""),
        ("probe/x", INIT, "probe/x:init", "probe/x:init", ""),
        ("probe/x@64", 10, "probe/x@64:10", "probe/x:10", "64"),
        ("probe/x@64", END, "probe/x@64", "probe/x", "64"),
    ],
)
def test_a_name_bears_its_moment_and_is_read_back(name: str, moment: Moment, whole: str, family: str, n: str) -> None:
    assert at_moment(name, moment) == whole
    assert split_moment(whole) == (name, moment)
    assert family_of(whole) == (family, n)


@pytest.mark.parametrize("name", ["val/loss", "probe/a:b", "probe/a:010", "probe/a:-1", "probe/a:1@2", ":init"])
def test_a_name_without_a_moment_is_of_the_end(name: str) -> None:
    assert split_moment(name) == (name, END)


def test_each_moment_of_a_probe_is_known_by_the_settings_that_all_its_moments_share() -> None:
    """So studies that ask for other moments of a trial share what both ask for."""
    plain: dict[str, Any] = {"_target_": "a.B", "batches": 4}
    asked = probe_keys({"probes": {"p": {**plain, "at": [INIT, 10, END]}, "q": plain}})
    assert asked == dict.fromkeys(["p:init", "p:10", "p", "q"], settings_key(plain))
    assert [moment_text(moment) for moment in (INIT, 1, 10, END)] == [
        *("at init", "after 1 step", "after 10 steps", "at end")
    ]

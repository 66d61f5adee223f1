"""One key, one role: what `arms`, `overrides`, `tune`, `match`, `grid` and `looks` cannot have together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from swapformer.errors import UsageError
from swapformer.study.config import overrides as texts

if TYPE_CHECKING:
    from swapformer.study.spec import Spec


def check(spec: Spec) -> None:
    """Raise UsageError for a key with two roles, tuning seeds that are reported, or looks without claims."""
    taken: dict[str, str] = {}
    for role, keys in _roles(spec).items():
        for key in keys:
            if key in taken:
                raise UsageError(f"{key} must have one role, but `{taken[key]}` and `{role}` both set it")
            taken[key] = role
    require_free(spec, spec.overrides, "`overrides`")
    for arm, overrides in spec.arms.items():
        require_free(spec, overrides, f"arm {arm!r}")
        if spec.match and arm != spec.baseline and texts.value(overrides, spec.match.key) is not None:
            raise UsageError(f"arm {arm!r} must not set {spec.match.key}, which `match` solves; take it out of one")
    if spec.match and len(spec.arms) == 1:
        raise UsageError("`match` makes arms cost what the baseline does, but this study has no other arm; add one")
    if spec.tune:
        if not spec.metrics[0].startswith("val/"):
            raise UsageError(
                f"`tune` chooses by the first metric, which must be one of validation (val/…), not {spec.metrics[0]}"
            )
        if shared := sorted(set(spec.tune.seeds) & set(spec.seeds)):
            raise UsageError(
                f"seeds that tune must not be reported, but {', '.join(map(str, shared))} would be; choose others"
            )
    if spec.looks and not spec.claims:
        raise UsageError("`looks` add seeds while claims are undecided, but this study has no claims; give seeds: N")


def require_free(spec: Spec, overrides: Sequence[str], where: str) -> None:
    """Refuse overrides of a key that `tune` or `grid` sets."""
    for role, keys in _roles(spec).items():
        for key in keys:
            if role != "match" and texts.value(overrides, key) is not None:
                raise UsageError(f"{where} must not set {key}, which `{role}` sets for all arms; take it out of one")


def _roles(spec: Spec) -> dict[str, Collection[str]]:
    return {
        "tune": spec.tune.values if spec.tune else (),
        "match": (spec.match.key,) if spec.match else (),
        "grid": spec.grid or (),
    }

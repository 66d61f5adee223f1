"""Mistakes in a study's overrides, as far as Hydra finds them: before torch, which takes seconds to import."""

from __future__ import annotations

from collections.abc import Sequence

from swapformer.errors import UsageError
from swapformer.study.comparison import require_free
from swapformer.study.config import overrides as texts
from swapformer.study.config.choices import composition
from swapformer.study.config.hydra_errors import explained
from swapformer.study.spec import Spec


def check_overrides(spec: Spec, extra: Sequence[str]) -> None:
    """Refuse an unknown option or key, in the study file or in `extra`, overrides of all arms.

    Every arm is composed in the first condition, and the baseline in each. What that gives is kept for `expand`, which
    judges the rest: whether the parts take their values, and go together.

    Raises:
        UsageError: for the first, those of the baseline before those of other arms.
    """
    check_extra(spec, extra)
    first, *others = (condition.overrides for condition in spec.conditions.values())
    cells = [(spec.baseline, first), *((arm, first) for arm in spec.arms), *((spec.baseline, each) for each in others)]
    for arm, condition in dict.fromkeys(cells):
        try:
            _compose(texts.merge(spec.overrides, condition, spec.arms[arm], extra))
        except UsageError as error:
            raise UsageError(f"{_where(arm, texts.merge(spec.overrides, condition, extra), error)}: {error}") from error


def _compose(overrides: Sequence[str]) -> None:
    with explained(overrides), composition(overrides):
        pass


def _where(arm: str, shared: Sequence[str], error: UsageError) -> str:
    """The place of a mistake: what all arms have, if it is one without the arm too."""
    try:
        _compose(shared)
    except UsageError as without:
        if str(without) == str(error):
            return "all arms"
    return f"arm {arm!r}"


def check_extra(spec: Spec, extra: Sequence[str]) -> None:
    """Refuse overrides of all arms that set what the study or one of its arms sets. Raises UsageError."""
    if texts.value(extra, "seed") is not None:
        raise UsageError("a study's seeds are set by `seeds`, not by seed=…; give seeds=8 or seeds=[0,1]")
    require_free(spec.roles, extra, "the command line")
    for arm, own in spec.arms.items():
        if same := {texts.key(each) for each in own} & {texts.key(each) for each in extra}:
            raise UsageError(
                f"the command line must not set {min(same)}, which makes arm {arm!r} what it is: it would keep its "
                "name and train something else; change the study file"
            )

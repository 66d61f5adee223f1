"""Designs of studies: arms and claims that follow from a recipe of several changes, each taken out or put in.

    design:
      kind: leave_one_out     # add_one_in, or both
      changes:                # name → its overrides; together they are the recipe
        rmsnorm: [model/norm=rmsnorm]
        rope: [model/position=rope]
      metric: val/loss        # with a margin: a claim for each change is added
      margin: 0.02

The arms are `recipe` (all changes), `plain` (none), `without_NAME` (all but one) and `only_NAME` (one alone). Claims
that are added say that a change is needed among the others (without it worse than the recipe), that it helps alone
(better than plain), and of both that it is worth the same in either place: the interaction

    (recipe − without_NAME) − (only_NAME − plain)

lies within the margin. Arms, claims and all else that the file has besides are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swapformer.errors import UsageError, quote
from swapformer.ranges import Positive, fits
from swapformer.study.comparison import require_keys
from swapformer.study.config import overrides as texts

KINDS = ("leave_one_out", "add_one_in", "both")
KEYS = ("kind", "changes", "metric", "margin")
RECIPE, PLAIN = "recipe", "plain"


def with_design(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A study file's content with the arms and claims of its `design`, which it no longer has.

    Raises UsageError for what is wrong with the design.
    """
    content = dict(raw)
    if "design" not in content:
        return content
    design = _checked(content.pop("design"))
    kind, changes = design["kind"], design["changes"]
    arms: dict[str, list[str]] = {RECIPE: _together(changes), PLAIN: []}
    if kind != "add_one_in":
        arms |= {
            f"without_{name}": _together({other: found for other, found in changes.items() if other != name})
            for name in changes
        }
    if kind != "leave_one_out":
        arms |= {f"only_{name}": list(found) for name, found in changes.items()}
    own = content.get("arms") or {}
    if not isinstance(own, Mapping):
        raise UsageError("`arms` of a study with a `design` must map names to lists of overrides")
    if shared := [name for name in own if name in arms]:
        raise UsageError(f"the arm {quote(shared[0])} is the design's; give yours another name")
    content["arms"] = {**arms, **own}
    content.setdefault("baseline", PLAIN if kind == "add_one_in" else RECIPE)
    content.setdefault("axis", list(dict.fromkeys(texts.key(each) for found in changes.values() for each in found)))
    if "metric" in design:
        claims = content.get("claims") or []
        if not isinstance(claims, list):
            raise UsageError(f"`claims` must be a list, not {quote(claims)}")
        content["claims"] = [*_claims(design), *claims]
    return content


def _checked(design: object) -> Mapping[str, Any]:
    if not isinstance(design, Mapping):
        raise UsageError(f"`design` must be {{kind: …, changes: {{NAME: [OVERRIDE, …], …}}}}, not {quote(design)}")
    require_keys(design, KEYS, "`design`")
    if design.get("kind") not in KINDS:
        raise UsageError(f"`design.kind` must be one of {', '.join(KINDS)}, not {quote(design.get('kind'))}")
    changes = design.get("changes")
    if not isinstance(changes, Mapping) or len(changes) < 2:
        raise UsageError("`design.changes` must map at least two names to lists of overrides: one is only two arms")
    taken: dict[str, str] = {}
    for name, found in changes.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise UsageError(f"a change's name must be a text without slashes, not {quote(name)}; put it in quotes")
        for override in texts.check(found, f"the change {quote(name)}"):
            if (other := taken.setdefault(texts.key(override), name)) != name:
                raise UsageError(
                    f"two changes must not set one key, but {quote(other)} and {quote(name)} both set "
                    f"{texts.key(override)}: taking one out would be changing the other"
                )
        if not found:
            raise UsageError(f"the change {quote(name)} must change something, but its list is empty")
    if design["kind"] == "both" and len(changes) == 2:
        raise UsageError(
            "`design.kind: both` needs at least three changes: of two, taking one out leaves only the other; use "
            "leave_one_out"
        )
    if ("metric" in design) != ("margin" in design):
        raise UsageError("`design.metric` and `design.margin` belong together: give both for claims, or neither")
    if "margin" in design and not fits(Positive, design["margin"]):
        raise UsageError(f"`design.margin` must be a number above 0, not {quote(design['margin'])}")
    return design


def _together(changes: Mapping[str, list[str]]) -> list[str]:
    return [override for found in changes.values() for override in found]


def _claims(design: Mapping[str, Any]) -> list[dict[str, Any]]:
    kind, metric, margin = design["kind"], design["metric"], design["margin"]
    about = {"metric": metric, "margin": margin}
    found: list[dict[str, Any]] = []
    for name in design["changes"]:
        without, only = f"without_{name}", f"only_{name}"
        if kind != "add_one_in":
            text = f"{name} is needed: without it {metric} is worse by {margin:g}"
            found.append({"text": text, "worse": {"arm": without, "than": RECIPE, **about}})
        if kind != "leave_one_out":
            text = f"{name} helps alone: {metric} is better by {margin:g}"
            found.append({"text": text, "better": {"arm": only, "than": PLAIN, **about}})
        if kind == "both":
            weights = {RECIPE: 1, without: -1, only: -1, PLAIN: 1}
            text = f"{name} is worth the same alone and among the others, to {margin:g}"
            contrast = {"weights": weights, "metric": metric, "between": [-margin, margin]}
            found.append({"text": text, "contrast": contrast})
    return found

"""study.yaml: everything that can be wrong with it is said in one line before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.exercises import shipped
from swapformer.results.arms import PublishedNumber, ShownFigure
from swapformer.results.manifest import read_manifest, write_manifest
from swapformer.study import spec
from swapformer.study.config import overrides
from swapformer.study.manifest import asked


def study(**changes: Any) -> dict[str, Any]:
    arms = {"h1": ["model.num_heads=1"], "h8": ["model.num_heads=8"]}
    return {"question": "Heads?", "baseline": "h8", "arms": arms, "seeds": 3, "metrics": ["val/loss"], **changes}


def test_a_study_of_ten_lines_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("baseline: rope\narms:\n  rope: [model/position=rope]\n  alibi: [model/position=alibi]\n")
    found = spec.load(str(file))
    assert (found.name, found.baseline, found.metrics, found.scale) == ("mine", "rope", ("val/loss",), "")
    assert found.seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_a_study_without_scales_has_none_to_choose(scale: str, tmp_path: Path) -> None:
    found = spec.parse(study(), "s", None, tmp_path)
    assert (found.scale, found.name, found.published) == ("", "s", tmp_path / "results")
    with pytest.raises(UsageError, match=f"this study has no scales, but scale={scale} was given; remove it"):
        spec.parse(study(), "s", scale)


def test_a_scale_has_its_seeds_and_overrides_which_win_over_the_common_ones() -> None:
    raw = study(
        overrides=["budget.steps=100", "task=copy"],
        scales={"smoke": {"seeds": 2, "overrides": ["budget.steps=5"]}, "cpu": {}},
    )
    assert spec.parse(raw, "s").overrides == ("budget.steps=100", "task=copy")
    smoke = spec.parse(raw, "s", "smoke")
    assert (smoke.overrides, smoke.seeds) == (("task=copy", "budget.steps=5"), (0, 1))
    with pytest.raises(UsageError, match="no scale 'smok'; did you mean 'smoke'"):
        spec.parse(raw, "s", "smok")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"basline": "h8"}, "unknown key 'basline' in a study; did you mean 'baseline'"),
        ({"tune": {}}, "`tune` must have at least one key"),
        ({"tune": ["optim.lr"]}, "`tune` must map keys to the values to try"),
        ({"tune": {"optim.lr": [1e-3]}}, "at least two values for optim.lr"),
        ({"tune": {"optim.lr": [1e-3, 1e-3]}}, "different values for optim.lr"),
        ({"tune": {"seed": [1, 2]}}, "other than the seed"),
        ({"tune": {"optim.lr": [1, 2], "seeds": 0}}, "`seeds` must be"),
        ({"tune": {"optim.lr": [1, 2], "seeds": [2, 9]}}, "must not be reported, but 2 would be"),
        ({"tune": {"optim.lr": [1, 2]}, "metrics": ["probe/x"]}, "one of validation (val/…), not probe/x"),
        ({"tune": {"model.num_heads": [1, 2]}}, "arm 'h1' must not set model.num_heads, which `tune` sets"),
        ({"tune": {"a.b": [1, 2]}, "overrides": ["a.b=3"]}, "`overrides` must not set a.b, which `tune` sets"),
        ({"tune": {"a.b": [1, 2]}, "grid": {"a.b": [1, 2]}}, "`tune` and `grid` both set it"),
        ({"match": {}}, "exactly one of params, flops, kv_bytes, pairs"),
        ({"match": {"params": "a.b", "flops": "a.b"}}, "exactly one of params, flops, kv_bytes, pairs"),
        ({"match": {"params": "model/size"}}, "the key of the size"),
        ({"match": {"parms": "a.b"}}, "no cost 'parms'; did you mean 'params'"),
        ({"match": {"params": "a.b", "within": 0}}, "`within` of `match` must be a fraction above 0"),
        ({"match": {"params": "model.num_heads"}}, "arm 'h1' must not set model.num_heads, which `match` solves"),
        ({"match": {"params": "a.b"}, "arms": {"h8": []}}, "`match` makes arms cost what the baseline does"),
        ({"grid": {}}, "`grid` must have at least one key"),
        ({"grid": {"model/size": "nano"}}, "at least two values for model/size"),
        ({"seeds": {"looks": [8, 8]}}, "`looks` must be growing numbers"),
        ({"seeds": {"looks": [1, 4]}}, "`looks` must be growing numbers of seeds from 2"),
        ({"seeds": {"look": [2, 4]}}, "`seeds` must be"),
        ({"seeds": {"looks": [2, 4]}}, "but this study has no claims"),
        ({"baseline": "h9"}, "the baseline must be one of the arms, but 'h9' is not; known: h1, h8"),
        ({"arms": {}}, "`arms` must map at least one name"),
        ({"arms": {"a": "model.num_heads=1"}}, "arm 'a' must be a list of overrides"),
        ({"arms": {"a": ["model.num_heads"]}}, "holds 'model.num_heads'"),
        ({"arms": {"a": [3]}}, "holds 3"),
        ({"arms": {True: []}}, "an arm's name must be a text"),
        ({"arms": {"a": ["seed=3"]}}, "must not set the seed"),
        ({"overrides": ["seed=3"]}, "`overrides` must not set the seed: `seeds` does"),
        ({"scales": {"cpu": {"overrides": ["+seed=3"]}}}, "`overrides` of scale cpu must not set the seed"),
        ({"seeds": 0}, "`seeds` must be"),
        ({"seeds": [1, 1]}, "`seeds` must be"),
        ({"seeds": True}, "`seeds` must be"),
        ({"seeds": ["a"]}, "`seeds` must be"),
        ({"metrics": "val/loss"}, "`metrics` must be a list"),
        ({"metrics": []}, "`metrics` must be a list"),
        ({"scales": {"cpu": {"seed": 3}}}, "unknown key 'seed' in scale 'cpu'; did you mean 'seeds'"),
        ({"claims": {"a": 1}}, "`claims` must be a list"),
        ({"question": 3}, "`question` must be a text"),
        ({"axis": 3}, "`axis` must be a key such as model/position, or a list of different keys, not 3"),
        ({"axis": ["a.b", "a.b"]}, "or a list of different keys, not ['a.b', 'a.b']"),
        ({"axis": ["model/position=rope"]}, "`axis` must be a key such as model/position"),
        (
            {"claims": [{"text": "x", "worse": {"arm": "h2", "than": "h8", "metric": "val/loss", "margin": 0}}]},
            "unknown arm 'h2'",
        ),
        (
            {"claims": [{"text": "x", "worse": {"arm": "h1", "than": "h8", "metric": "val/los", "margin": 0}}]},
            "does not measure 'val/los'; did you mean 'val/loss'",
        ),
    ],
)
def test_what_is_wrong_with_a_study_is_named(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        spec.parse(study(**changes), "s")
    assert complaint in str(error.value)


def test_a_study_without_a_baseline_is_refused() -> None:
    """Taken from the order of the arms, it would change when somebody sorts them."""
    raw = study()
    del raw["baseline"]
    with pytest.raises(UsageError, match=r"`baseline` must name the arm .* one of h1, h8"):
        spec.parse(raw, "s")


def test_the_file_is_named_when_it_is_wrong_or_no_yaml(tmp_path: Path) -> None:
    for text in ("arms: [", "3", "basline: h8"):
        (tmp_path / "study.yaml").write_text(text)
        with pytest.raises(UsageError, match=r"study\.yaml"):
            spec.load(str(tmp_path))


def test_a_study_of_an_exercise_is_named_with_its_part() -> None:
    assert spec.load("04_head_count/width", "smoke").name == "04_head_count/width.smoke"
    assert (
        spec.published_folder("04_head_count/width.gpu") == shipped()["04_head_count/width"].parent / "results" / "gpu"
    )
    with pytest.raises(UsageError, match=r"one study has to be named, but '04' has parts: .*04_head_count/width"):
        spec.load("04")


@pytest.mark.parametrize("name", ["a/b/c", "../b", "a/..", "/b", "a/", " a", "a/ b", "x" * 201])
def test_a_name_that_is_no_folder_of_a_store_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="a study's name"):
        spec.parse(study(), name)


def test_of_two_overrides_of_one_key_the_later_wins() -> None:
    merged = overrides.merge(["task=text", "a.b=1", "+preset=x"], ["a.b=2"], ["task=copy", "~c"])
    assert merged == ["+preset=x", "a.b=2", "task=copy", "~c"]


def test_each_scale_has_a_report_and_a_results_folder_of_its_own(tmp_path: Path) -> None:
    raw = {"baseline": "a", "arms": {"a": [], "b": ["model.num_heads=2"]}, "scales": {"smoke": {"seeds": 2}, "cpu": {}}}
    default, smoke = (spec.parse(raw, "mine", scale, tmp_path) for scale in (None, "smoke"))
    assert (default.name, default.published) == ("mine", tmp_path / "results")
    assert (smoke.name, smoke.published) == ("mine.smoke", tmp_path / "results" / "smoke")


def test_values_are_spelled_as_overrides_and_combined() -> None:
    """YAML reads 3e-4, which has no point, as a text."""
    raw = study(
        tune={"optim.lr": ["3e-4", 0.001], "optim.betas": [[0.9, 0.95], [0.9, 0.99]], "seeds": 2},
        grid={"model/size": ["nano", "micro"], "model.bias": [True, False]},
    )
    found = spec.parse(raw, "s")
    assert found.tune is not None and found.tune.seeds == (1_000_000, 1_000_001)
    assert found.tune.values == {"optim.lr": ("3e-4", "0.001"), "optim.betas": ("[0.9, 0.95]", "[0.9, 0.99]")}
    assert list(found.conditions) == [
        "model/size=nano, model.bias=true", "model/size=nano, model.bias=false",
        "model/size=micro, model.bias=true", "model/size=micro, model.bias=false",
    ]  # fmt: skip
    chosen = found.conditions["model/size=micro, model.bias=true"]
    assert chosen.overrides == ("model/size=micro", "model.bias=true")
    assert chosen.values == {"model/size": "micro", "model.bias": "true"}
    assert list(spec.parse(study(), "s").conditions) == [""]


def test_a_scale_may_have_its_own_claims_and_the_counters_of_its_own_text() -> None:
    """Another split or block is another text, of which a counter has another loss."""
    asked_of = {
        name: {"text": name, "better": {"arm": "h1", "than": "h8", "metric": "val/loss", "margin": 0}} for name in "ab"
    }
    raw = study(
        claims=[asked_of["a"]],
        must_beat={"val/loss": {"a counter": 1.8}},
        figures={"arms_val_loss": {"lines": {"a counter": 1.8}}},
        scales={
            "cpu": {},
            "demo": {"claims": None},
            "gpu": {"must_beat": {"val/loss": {"a counter": 1.6}}, "figures": None, "claims": [asked_of["b"]]},
        },
    )
    cpu, gpu = (spec.parse(raw, "s", scale) for scale in ("cpu", "gpu"))
    assert (cpu.must_beat, [each.name for each in cpu.figures]) == ({"val/loss": {"a counter": 1.8}}, ["arms_val_loss"])
    assert (gpu.must_beat, gpu.figures) == ({"val/loss": {"a counter": 1.6}}, ())
    assert [[each["text"] for each in found.claims] for found in (cpu, gpu, spec.parse(raw, "s", "demo"))] == [
        ["a"], ["b"], []]  # fmt: skip


def test_a_scale_may_tune_match_and_cross_otherwise_or_not_at_all() -> None:
    raw = study(
        tune={"optim.lr": [1, 2]},
        grid={"model/size": ["nano", "micro"]},
        scales={"smoke": {"tune": None, "grid": {"model.bias": [True, False]}}, "cpu": {}},
    )
    smoke, default = spec.parse(raw, "s", "smoke"), spec.parse(raw, "s")
    assert smoke.tune is None and list(smoke.grid or ()) == ["model.bias"]
    assert default.tune is not None and list(default.grid or ()) == ["model/size"]


def test_looks_are_seeds_that_come_in_steps_and_a_number_takes_them_off() -> None:
    claim = {"text": "x", "worse": {"arm": "h1", "than": "h8", "metric": "val/loss", "margin": 0}}
    found = spec.parse(study(seeds={"looks": [8, 14, 20]}, claims=[claim]), "s")
    assert (found.seeds, found.looks) == (tuple(range(20)), (8, 14, 20))
    assert spec.with_seeds(found, "4").looks == ()
    assert spec.with_seeds(found, "{looks: [2, 3]}").looks == (2, 3)


PAPER = {"metric": "val/loss", "source": "A 2017", "points": [{"arm": "h1", "value": 1.7}, {"x": 4, "value": 1}]}


def test_stated_numbers_go_into_the_manifest_and_come_back(tmp_path: Path) -> None:
    found = asked(spec.parse(study(published=[PAPER]), "s"))
    write_manifest(tmp_path, found)
    assert read_manifest(tmp_path).published == found.published
    assert found.published == (
        PublishedNumber("val/loss", "A 2017", 1.7, "h1"), PublishedNumber("val/loss", "A 2017", 1.0, None, 4),
    )  # fmt: skip
    assert "published" not in asked(spec.parse(study(), "s")).to_json()


def test_figures_and_ranges_go_into_the_manifest_and_come_back(tmp_path: Path) -> None:
    raw = study(
        figures={
            "axis_val_loss": None,
            "curve_val_loss": {"caption": "c", "x": "steps", "lines": {"a counter": 2}},
            "axis_val_loss_other": None,
            "forest_val_loss": None,
        },
        ranges={"val/loss": [0, 9]},
        must_beat={"val/loss": {"a trigram": 1}},
    )
    found = asked(spec.parse(raw, "s"))
    write_manifest(tmp_path, found)
    again = read_manifest(tmp_path)
    assert (
        again.figures
        == found.figures
        == (
            ShownFigure("axis_val_loss", lines={"a trigram": 1.0}),
            ShownFigure("curve_val_loss", "c", "steps", "", {"a trigram": 1.0, "a counter": 2.0}),
            ShownFigure("axis_val_loss_other"),
            ShownFigure("forest_val_loss"),
        )
    )
    assert again.must_beat == found.must_beat == {"val/loss": {"a trigram": 1.0}}
    assert again.ranges == found.ranges == {"val/loss": (0.0, 9.0)}
    assert not {"figures", "ranges", "must_beat"} & json.loads(asked(spec.parse(study(), "s")).to_json()).keys()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"figures": ["a"]}, "`figures` must map names of figures to"),
        ({"figures": {"a": {"title": "b"}}}, "`figures`: 'a' may have caption, x, y and lines, and no other key"),
        ({"figures": {"a.svg": {}}}, r"'a\.svg' must be the name of a figure's file without \.svg"),
        ({"figures": {"a": {"x": 1}}}, "`x` must be a text, not 1"),
        ({"figures": {"a": {"lines": {"b": True}}}}, "`lines` must map texts to numbers"),
        ({"figures": {"a": {"lines": [1]}}}, "`lines` must map texts to numbers"),
        ({"ranges": [1]}, "`ranges` must map metrics to"),
        ({"ranges": {"val/los": [0, 1]}}, "does not measure 'val/los'; did you mean 'val/loss'"),
        ({"ranges": {"val/loss": [1, 1]}}, "`ranges` of val/loss must be"),
        ({"ranges": {"val/loss": [0, float("inf")]}}, "`ranges` of val/loss must be"),
        ({"must_beat": ["val/loss"]}, "`must_beat` must map metrics to"),
        ({"must_beat": {"val/los": {"a": 1}}}, "does not measure 'val/los'; did you mean 'val/loss'"),
        ({"must_beat": {"val/loss": 1.6}}, "`must_beat` of val/loss must map names to numbers"),
        ({"must_beat": {"val/loss": {"a": float("nan")}}}, "`must_beat` of val/loss must map names to numbers"),
    ],
)
def test_wrong_figures_and_ranges_are_named(more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        spec.parse(study(**more), "s")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("published", "message"),
    [
        (PAPER, "`published` must be a list of"),
        ([{**PAPER, "sauce": 1}], "must have metric, source and points, and no other key"),
        ([{**PAPER, "metric": "val/los"}], "does not measure 'val/los'; did you mean 'val/loss'"),
        ([{**PAPER, "source": " "}], "`source` must name where the numbers stand, not ' '"),
        ([{**PAPER, "points": []}], "`points` must be a list"),
        ([{**PAPER, "points": [{"arm": "h1", "x": 1, "value": 2}]}], "`value` and either `arm` or `x`"),
        ([{**PAPER, "points": [{"arm": "h2", "value": 2}]}], "no arm 'h2'; known: h1, h8"),
        ([{**PAPER, "points": [{"x": 1, "value": float("nan")}]}], "`value` of a point must be a number, not nan"),
    ],
)
def test_wrong_stated_numbers_are_named(published: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spec.parse(study(published=published), "s")


def test_the_arms_of_all_parts_of_an_exercise_share_one_palette() -> None:
    one, other = (asked(spec.load(f"07_position_encodings/{part}")).palette for part in ("copy", "more"))
    assert one == other and {"rope", "alibi", "randomized"} <= set(one) and len(one) == len(set(one))
    assert asked(spec.load("17_learning_rates")).palette == (), "a study that is no part has colours of its own"

"""Every shipped study: the trials it expands to, what its arms differ in, what was published, and some runs.

All tests of a study run in one process (conftest.py). Of each exercise one study is expanded at its cpu scale, and
two are trained at their smoke scale; the other studies and scales, and published figures, are in `make evidence`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from swapformer.cli import main
from swapformer.exercises import exercises, shipped
from swapformer.report.build import rebuild
from swapformer.report.page.tables import BEGIN
from swapformer.study import arm_differences
from swapformer.study.config import identity as identities
from swapformer.study.config.compose import compose
from swapformer.study.expand import expand
from swapformer.study.plan import Plan, with_seed
from swapformer.study.published_results import published_results
from swapformer.study.spec import load

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).parent / "golden"
IDS = GOLDEN / "studies.json"
REFRESH = "`python -m pytest tests/test_studies.py -m 'evidence or not evidence' --numprocesses 0 --refresh-golden`"
STUDIES = {name: path.parent for name, path in shipped().items()}
ANY_DATA = "data of any version"
"""Stands for the hash of a trial's data: the standard library's source differs between versions of Python."""


EXPANDED = (
    *("01_attention_complexity/width", "02_attention_patterns/induction", "03_causal_mask/encoder"),
    *("04_head_count/width", "05_kv_sharing/quality", "06_sinusoid_linearity/tables", "07_position_encodings/copy"),
    *("08_rope_alibi/copy", "09_activations/dead", "10_ffn_sparsity/facts", "11_norm_placement/range"),
    *("12_initialisation/depths", "13_sparse_patterns/series", "14_architecture_tradeoffs/language"),
    *("15_open_questions/hints", "16_modern_recipe/needed", "17_learning_rates"),
)
"""One study of each exercise, whose arms take other options than those of the others."""
SCALES = [
    pytest.param(
        (name, scale), id=f"{name}-{scale}", marks=[] if name in EXPANDED and scale == "cpu" else pytest.mark.evidence
    )
    for name, path in shipped().items()
    for scale in yaml.safe_load(path.read_text(encoding="utf-8"))["scales"]
]


@pytest.fixture(scope="module", params=SCALES)
def plan(request: pytest.FixtureRequest) -> Plan:
    """A study expanded at one of its scales."""
    name, scale = request.param
    return expand(load(name, scale))


@contextmanager
def any_machine() -> Iterator[None]:
    """Ids computed within depend neither on the version of torch nor on the machine."""
    identities._hardware.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identities, "version", lambda package: f"{package} of any version")
        patch.setattr(identities, "hardware", lambda accelerator: "any machine")
        yield
    identities._hardware.cache_clear()


@pytest.fixture
def refresh(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--refresh-golden"))


def study_of(plan: Plan) -> tuple[str, str]:
    """The study's name and its scale."""
    scale = plan.spec.scale
    return plan.spec.name.removesuffix(f".{scale}"), scale


def ids_digest(plan: Plan) -> str:
    """A hash of the ids of all trials that a study could run.

    A trial's id follows from its template and its seed, so templates are numbered with the placeholder for the seed.
    """
    with any_machine():
        templates = [
            [each.arm, each.condition, list(each.setting), identities.trial_id({**each.config, "data": ANY_DATA})]
            for each in plan.templates
        ]
    tuning = list(plan.spec.tune.seeds) if plan.spec.tune else []
    text = json.dumps([templates, list(plan.spec.seeds), tuning])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class TestExpanded:
    def test_ids_are_the_committed_ones(self, plan: Plan, refresh: bool) -> None:
        """A change that gives trials other ids makes every stored result unreachable, so it must show here."""
        name, scale = study_of(plan)
        known = json.loads(IDS.read_text(encoding="utf-8")) if IDS.exists() else {}
        found = ids_digest(plan)
        if refresh:
            known.setdefault(name, {})[scale] = found
            kept = {study: known[study] for study in STUDIES if study in known}
            IDS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        assert known[name][scale] == found, f"trials of {name} at {scale} have other ids; if that is meant, {REFRESH}"

    def test_every_arm_is_possible(self, plan: Plan) -> None:
        """The gpu scale needs no GPU to be composed, checked and numbered."""
        assert plan.impossible == {}
        assert {template.arm for template in plan.templates} == set(plan.spec.arms)

    def test_no_arm_differs_in_more_than_its_axis(self, plan: Plan) -> None:
        first = {each.arm: each.config for each in reversed(plan.templates)}
        for arm, config in first.items():
            changed = arm_differences.changed(first[plan.spec.baseline], config)
            assert arm_differences.beyond(plan.spec, arm, list(changed)) == ()

    def test_what_it_must_beat_was_counted_on_the_text_that_it_is_evaluated_on(self, plan: Plan) -> None:
        """By the command that the file states: the lengths of evaluation, too, say which tokens are scored."""
        name, scale = study_of(plan)
        if scale != "cpu" or not plan.spec.must_beat:
            pytest.skip("counters are stated for text, at the cpu scale")
        stated = re.search(r"^# swapformer baseline (.+?)(?:: what .*)?$", shipped()[name].read_text("utf-8"), re.M)
        assert stated is not None, f"{name} must say which command counted what it must beat"
        counted = compose(shlex.split(stated[1]))
        for each in plan.templates:
            differ = {key for key, value in each.config["task"].items() if counted["task"].get(key) != value}
            assert differ <= {"batch_size"}, f"{name}: {stated[0]} counts another text ({each.arm})"
            assert each.config["eval"]["final_batches"] == counted["eval"]["final_batches"]

    def test_the_baseline_is_the_committed_one(self, plan: Plan, refresh: bool) -> None:
        """A default that changes shows as a diff here, before it changes an answer."""
        name, scale = study_of(plan)
        if scale != "cpu":
            pytest.skip("baselines are kept at the cpu scale")
        config = next(each.config for each in plan.templates if each.arm == plan.spec.baseline)
        whole = identities.identity({**with_seed(config, plan.spec.seeds[0]), "data": ANY_DATA})
        found = {key: value for key, value in whole.items() if key not in ("data", "environment", "results_epoch")}
        file = GOLDEN / f"{name}.yaml"
        if refresh:
            file.parent.mkdir(exist_ok=True)
            text = yaml.safe_dump(found, sort_keys=True, allow_unicode=True, default_flow_style=None, width=120)
            file.write_text(text, encoding="utf-8")
        golden = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert found == golden, f"the baseline of {name} is no longer the committed one; if that is meant, {REFRESH}"


def test_every_golden_file_belongs_to_a_study_and_a_scale() -> None:
    assert {file.relative_to(GOLDEN).with_suffix("").as_posix() for file in GOLDEN.rglob("*.yaml")} == set(STUDIES)
    known = json.loads(IDS.read_text(encoding="utf-8"))
    assert [(name, scale) for name, scales in known.items() for scale in scales] == [each.values[0] for each in SCALES]


class TestFiles:
    @pytest.mark.parametrize("name", STUDIES)
    def test_have_a_readme_and_their_scales(self, name: str) -> None:
        content = yaml.safe_load(shipped()[name].read_text(encoding="utf-8"))
        assert {"smoke", "cpu"} <= set(content["scales"])
        assert content["question"] and content["claims"]
        for listed in (content, *content["scales"].values()):
            assert len(listed.get("figures") or {}) <= 4, "a reader looks at few"
        exercise = name.split("/")[0]
        text = (ROOT / "experiments" / exercise / "README.md").read_text(encoding="utf-8")
        assert text.startswith("# ") and f"swapformer study {exercise}" in text

    def test_every_folder_of_experiments_is_one(self) -> None:
        folders = {path.name for path in (ROOT / "experiments").iterdir() if path.is_dir()}
        assert folders == set(exercises()) == {name.split("/")[0] for name in STUDIES}


PUBLISHED = [
    pytest.param(name, None if path.parent.name == "results" else path.parent.name, id=name)
    for name, folder in STUDIES.items()
    for path in sorted(folder.glob("results/**/results.csv"))
]
"""Every study that was published, with its scale where it is not the default one."""


@pytest.mark.evidence
@pytest.mark.parametrize(("name", "scale"), PUBLISHED)
def test_a_published_study_is_drawn_again_from_its_folder(name: str, scale: str | None, tmp_path: Path) -> None:
    """Byte by byte: a figure that was drawn before a change of style, or of what it shows, is stale."""
    records, place = published_results(STUDIES[name], scale)
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)  # figures of probes, which need more than the csv, stay
    report = rebuild(records, tmp_path, publish=True)
    assert any(path.name == "table.md" for path in report.files)
    stale = [path.name for path in report.files if path.read_bytes() != (place / path.name).read_bytes()]
    assert not stale, f"swapformer report {STUDIES[name]} --publish"


@pytest.mark.parametrize(("name", "scale"), PUBLISHED)
def test_a_published_study_is_judged_again_from_its_folder(name: str, scale: str | None, tmp_path: Path) -> None:
    """table.md and what stands between the study's markers in the README are what `report --publish` writes."""
    records, place = published_results(STUDIES[name], scale)
    readme = STUDIES[name] / ("../README.md" if "/" in name else "README.md")
    before = readme.read_text(encoding="utf-8")
    assert before.count(BEGIN.format(records.manifest.name)) == 1
    (tmp_path / "README.md").write_text(before, encoding="utf-8")
    again = tmp_path.joinpath(*name.split("/")[1:], "results", scale or "")
    rebuild(records, again, publish=True, draw=False)
    assert (again / "table.md").read_text() == (place / "table.md").read_text()
    cells = ["condition", "arm", "seed"]
    curves, measured = (set(found[cells].itertuples(index=False)) for found in (records.histories, records.cells))
    assert curves <= measured, f"the history.csv of {name} is of another training"
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == before, (
        f"swapformer report {STUDIES[name]} --publish"
    )


def run_at_smoke_scale(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the study file to the report, with every arm trained."""
    assert main(["study", str(STUDIES[name]), "scale=smoke", f"runs_dir={place}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["study"] == f"{name}.smoke" and found["failed"] == {}
    assert found["trials"].keys() <= {"finished", "diverged"}
    assert found["complete"] and found["impossible"] == {}
    assert (place / "studies" / found["study"] / "report" / "report.html").is_file()


REHEARSED = ("01_attention_complexity/short", "03_causal_mask/both_sides")
"""A study that measures, one with probes and one that decodes; `make evidence` runs all others."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", REHEARSED)
def test_a_study_runs_at_the_smoke_scale(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_at_smoke_scale(name, tmp_path, capsys)


@pytest.mark.evidence
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name in STUDIES if name not in REHEARSED])
def test_every_other_study_runs_at_the_smoke_scale(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_at_smoke_scale(name, tmp_path, capsys)

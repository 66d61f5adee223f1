"""A study judged from its folder, without a store. Every committed one is judged again in tests/test_studies.py."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.exercises import shipped
from swapformer.paths import experiments_dir
from swapformer.report.build import rebuild
from swapformer.study.published_results import published_results

STUDIES = {name: path.parent for name, path in shipped().items()}


def test_what_the_first_studies_decided_stays_decided() -> None:
    """What 04 and 07 decided at their margins with all seeds; a rule that changes shows here, and in CHANGELOG.md."""
    for name, outcomes in {"04_head_count/width": "ssuussur", "07_position_encodings/copy": "uurussss"}.items():
        found = "".join(verdict.outcome[0] for verdict in rebuild(*published_results(STUDIES[name])).verdicts)
        assert found == outcomes


def test_a_study_that_was_judged_from_its_folder_left_nothing_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "04_head_count"
    shutil.copytree(STUDIES["04_head_count/width"], folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    main(["report", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["files"] == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (folder / "results" / "table.md").write_text("old")
    main(["report", str(folder), "--publish"])
    assert (folder / "results" / "table.md").read_bytes() == before[folder / "results" / "table.md"]
    assert (folder / "results" / "results.csv").read_bytes() == before[folder / "results" / "results.csv"]
    assert str(folder / "results" / "table.md") in capsys.readouterr().out.replace("\n", "")


def test_a_study_without_published_results_says_what_writes_them(tmp_path: Path) -> None:
    shutil.copy(STUDIES["04_head_count/width"] / "study.yaml", tmp_path)
    with pytest.raises(UsageError, match=r"does not exist; `swapformer study .* --publish` writes it"):
        published_results(tmp_path)


def seeds(part: str, metric: str, *, step: int | None = None, where: str = "") -> pd.DataFrame:
    """The published numbers of a metric, a row for each seed, a column for each arm; at a step, those of training."""
    name = "results" if step is None else "history"
    rows = pd.read_csv(experiments_dir() / part / "results" / f"{name}.csv")
    rows = rows[(rows["metric"] == metric) & (rows["step"] == step if step is not None else True)]
    return (rows.query(where) if where else rows).pivot_table("value", "seed", "arm")


def told(*values: float, digits: int = 2) -> str:
    """Numbers as READMEs write them: .23, −.05."""
    plain = (f"{abs(value):.{digits}f}".removeprefix("0") for value in values)
    return ", ".join(f"{'−' if value < 0 else ''}{text}" for value, text in zip(values, plain, strict=True))


def apart(first: pd.Series, second: pd.Series, digits: int) -> str:
    """The mean of paired differences and half of its 95 % interval."""
    found = (first - second).dropna()
    half = float(stats.t.ppf(0.975, len(found) - 1) * found.std() / math.sqrt(len(found)))
    return f"{'+' if found.mean() > 0 else ''}{told(found.mean(), digits=digits)}±{told(half, digits=digits)}"


def test_numbers_that_readmes_take_from_results_without_a_claim() -> None:
    heads, around = seeds("04_head_count/width", "val/loss"), seeds("04_head_count/around_eight", "val/bits_per_byte")
    bits = seeds("04_head_count/width", "val/bits_per_byte")
    guided = seeds("04_head_count/shaped", "val/bits_per_byte", step=260)
    rope = [seeds("08_rope_alibi/language", "val/bits_per_byte", step=step) for step in (260, 520, 780)]
    cosine = [sum(math.cos(k * 10000 ** (-i / 32)) for i in range(32)) / 32 for k in (1, 8, 64)]
    blocks = seeds("07_position_encodings/text", "val/bits_per_byte@512")
    windows = seeds("07_position_encodings/text", "probe/replay/sliding/bits_per_byte@512")
    texts = [seeds("07_position_encodings/to_128", f"val/exact_match@{length}")["alibi"].mean() for length in (64, 128)]
    time = [seeds("08_rope_alibi/cost", f"time/all@{length}").mean() for length in (1024, 2048, 4096)]
    gains = [seeds("09_activations/gains", "derived/log_last", where=f"`model.init.gain` == {gain}").mean()
             for gain in (1.0, 1.1, 1.175, 1.25, 1.3)]  # fmt: skip
    smaller = [math.exp(at["relu"] - at[arm]) for at in gains for arm in ("gelu", "silu")]
    depths = [seeds("12_initialisation/depths", "val/loss", where=f"`model.num_layers` == {n}").mean()
              for n in (6, 24, 48)]  # fmt: skip
    deep = {arm: told(*(at[arm] for at in depths)) for arm in ("pre", "post", "deepnorm")}
    deeper = [told(at[arm] - depths[0][arm]) for arm in ("pre", "deepnorm") for at in depths[1:]]
    far = seeds("08_rope_alibi/needle", "val/accuracy@256").mean()
    whole = seeds("11_norm_placement/gains", "probe/stream_rank_last:init").mean()
    variance = {n: seeds("12_initialisation/natural", "probe/logit_variance:init", where=f"`model.num_heads` == {n}")
                ["natural"].mean() for n in (1, 4)}  # fmt: skip
    spoken = seeds("13_sparse_patterns/dialogue", "val/loss", step=200).mean()
    linked = seeds("13_sparse_patterns/code", "probe/linked_loss")
    steps = {n: seeds("14_architecture_tradeoffs/lengths", f"time/step@{n}").map(math.log).mean()
             for n in (256, 512, 2048, 4096)}  # fmt: skip
    crossing = {}
    for arm, n in (("linear", 256), ("gated_delta", 2048)):
        slower, faster = (steps[at][arm] - steps[at]["softmax"] for at in (n, 2 * n))
        crossing[arm] = n * 2 ** (slower / (slower - faster))
    longer = [seeds("14_architecture_tradeoffs/language", metric)["linear_conv"].mean()
              for metric in ("val/loss@4096", "val/loss")]  # fmt: skip
    warm = seeds("12_initialisation/warm_up", "val/loss").mean()
    early = [seeds("15_open_questions/rates", f"probe/early_exit/{what}")["early_exit"].mean()
             for what in ("saved/0.5", "loss/0.5", "loss/1")]  # fmt: skip
    entropy = seeds("15_open_questions/rates", "probe/entropy").mean()
    slow, fast = (seeds(f"15_open_questions/{part}", "val/loss")["standard"] for part in ("hints", "experts"))
    first = [seeds("11_norm_placement/first_step", "probe/first_step/0.001:init", where=f"`model.num_layers` == {n}")
             ["post"].mean() for n in (6, 12)]  # fmt: skip
    trained = {n: f"`model.num_layers` == {n}" for n in (6, 12, 24)}
    rank = {n: seeds("11_norm_placement/trained", "probe/stream_rank_last:init", where=where).mean()
            for n, where in trained.items()}  # fmt: skip
    collapsed = seeds("11_norm_placement/trained", "probe/stream_rank_last", where=trained[24])["post"].mean()
    fall = {n: seeds("11_norm_placement/trained", "derived/log_after", where=where).mean().map(math.exp)
            for n, where in trained.items()}  # fmt: skip
    taken = (
        ("04", told(*(math.exp(heads[f"h{n}"].mean()) for n in (1, 2, 4, 8, 16, 32))) + " a character"),
        ("04", f"4 {apart(around['h4'], around['h8'], 3)}, 16 {apart(around['h16'], around['h8'], 3)}"),
        ("04", f"16 cost {apart(bits['h16'], bits['h8'], 3).lstrip('+')} more than 8"),
        ("04", f"32 another {told((bits['h32'] - bits['h16']).mean())}"),
        ("04", f"guided {apart(guided['guided'], guided['plain'], 2)} after 260 steps"),
        ("07", f"(sinusoids {told(*cosine)})"),
        ("07", f"T5's bias in blocks ({apart(blocks['t5'], blocks['alibi'], 3)})"),
        ("07", f"ALiBi in windows ({apart(windows['alibi'], windows['t5'], 3)})"),
        ("07", f"whole texts {told(texts[0])}, at 128 {told(texts[1], digits=3)}"),
        ("08", told(*((at["alibi"] - at["rope"]).mean() for at in rope)) + " behind"),
        ("08", "{} of rope's there (heads of 64: {}), {} at 2048 ({}), {} at 1024 ({})".format(
            *(told(at[f"alibi{wide}"] / at[f"rope{wide}"]) for at in reversed(time) for wide in ("", "_wide")))),
        ("09", f"are {min(smaller):.0f} to {round(max(smaller), -1):.0f} times smaller than ReLU's"),
        ("11", "at .001, {} with 6 layers, {} with 12".format(*map(told, first))),
        ("11", f"effective rank {told(*(at['post'] for at in rank.values()), digits=1)} over 6, 12, 24 layers"),
        ("11", f"(deepnorm {told(rank[24]['deepnorm'], digits=1)})"),
        ("11", f"effective rank is {told(rank[24]['post'], digits=1)} before training and {collapsed:.3f} after"),
        ("11", f"{told(fall[24]['post'], digits=4)} (24 layers), {told(fall[12]['post'])} (12), "
               f"{told(fall[6]['post'])} (6); deepnorm: {told(fall[24]['deepnorm'])}"),
        ("11", f"pre-norm's {told(fall[24]['pre'], digits=1)})"),
        ("14", f"from about {round(crossing['linear'], -1):.0f} tokens on"),
        ("14", f"gated_delta from about {round(crossing['gated_delta'], -2):,.0f}".replace(",", " ")),
        ("14", f"(`lengths` {math.exp(steps[2048]['gated_delta'] - steps[2048]['softmax']):.2f})"),
        ("14", f"(convolved +{longer[0] - longer[1]:.2f})"),
        ("15", f"would save {100 * early[0]:.0f} % for {told(early[1] - early[2], digits=3)}"),
        ("15", f"standard {told((slow - fast).mean(), digits=3)} worse than at .032"),
        ("15", f"relative entropy {told(entropy['entmax15'], entropy['sparsemax'])} in place of "
               + told(entropy["standard"])),
        ("12", f"pre {deep['pre']}, post {deep['post']}, deepnorm {deep['deepnorm']}"),
        ("08", f"needle at 8×: rope {told(far['rope'])}, others {told(far['alibi'])} to {told(far['none'])}"),
        ("11", f"with branches of .7 it is {told(whole['g70'], digits=1)}, of .5 {told(whole['g50'], digits=1)}"),
        ("11", f"gains post-norm {told(warm['post'] - warm['post_warm'])} nats at own rates"),
        ("12", f"deepnorm and pre lose {told(warm['deepnorm_warm'] - warm['deepnorm'])} and "
               + told(warm["pre_warm"] - warm["pre"])),
        ("12", "pre-norm loses {} to 24 layers and {} to 48, deepnorm {} and {}".format(*deeper)),
        ("12", f"variance {told(variance[1])} (four heads {told(variance[4])})"),
        ("13", f"loss is {told(spoken['bias'] - spoken['no_speaker'])} lower after 200 steps"),
        ("13", f"(in `code` {apart(linked['window'], linked['bias'], 3)})"),
    )  # fmt: skip
    for exercise, text in taken:
        (readme,) = experiments_dir().glob(f"{exercise}_*/README.md")
        assert text in readme.read_text(encoding="utf-8"), (readme.parent.name, text)

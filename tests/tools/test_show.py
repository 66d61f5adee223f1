"""`swapformer show`: every part of a drawable slot draws itself."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from configs import every_part
from swapformer.errors import UsageError
from swapformer.model.layers import Role, origin_of
from swapformer.study.config.compose import compose
from swapformer.task.recall import FactRecall
from swapformer.tools.drawings import DRAWINGS, OVERLAYS, VOCABULARY
from swapformer.tools.show import SIZES, main
from swapformer.training.assemble import build_model

SVG = "{http://www.w3.org/2000/svg}"
OPTIONS = {slot: [option for name, option in every_part() if name == slot] for slot in DRAWINGS}
SHOWN = {"position": "rope alibi", "pattern": "window causal", "activation": "gelu silu"}
"""Two options of a slot; its first and last unless they stand here. Where all are drawn, it is for evidence."""
ALIKE = {
    *(
        "relative_bias",
        "relative_key",
        "relative_key_query",
        "learned_interpolated",
        "transformer_xl",
        "randomized",
        "sum",
    ),
    *("strided_heads", "names", "keywords", "same_tag", "events", "shifted", "softmax1"),
}
"""Options that start as another does, or are drawn with the same tags."""


def drawn(slot: str, option: str, folder: Path) -> list[str]:
    """What a part's drawing holds of data: the lines and images that are cut off at the edges of their panel."""
    file = folder / f"{option}.svg"
    assert main([f"model/{slot}={option}", "--out", str(file)]) == 0
    root = ElementTree.parse(file).getroot()
    assert root.tag == f"{SVG}svg"
    assert f"model/{slot}={option}" in file.read_text(encoding="utf-8")
    lines = [each for each in root.iter(f"{SVG}path") if "clip-path" in each.attrib]
    data = [*lines, *root.iter(f"{SVG}image")]
    return [each.get("d") or each.get("{http://www.w3.org/1999/xlink}href") or "" for each in data]


@pytest.mark.parametrize(
    ("slot", "options"),
    [
        *((slot, SHOWN.get(slot, f"{OPTIONS[slot][0]} {OPTIONS[slot][-1]}").split()) for slot in DRAWINGS),
        *(pytest.param(slot, OPTIONS[slot], marks=pytest.mark.evidence) for slot in DRAWINGS),
    ],
)
def test_parts_draw_themselves_as_svg_and_each_in_its_own_way(slot: str, options: list[str], tmp_path: Path) -> None:
    """Those that start as others do look like them: tables of zeros or noise, and the same pattern in other heads."""
    pictures = {option: drawn(slot, option, tmp_path) for option in options}
    assert all(len("".join(data)) > 100 for data in pictures.values())
    told_apart = [data for option, data in pictures.items() if option not in ALIKE]
    assert all(first != second for first, second in combinations(told_apart, 2))


def test_the_weights_of_an_init_are_drawn_by_layer_not_by_matrix() -> None:
    """A low-rank feed-forward layer has three matrices of one role, and an encoder has layers of its own."""
    chosen = ["model/init=gpt2", "model/ffn=low_rank", "model/topology=encoder_decoder", "task=reverse"]
    config = compose([*SIZES, *chosen])
    lines = {str(line.get_label()): line for line in DRAWINGS["init"](config).axes[0].get_lines()}
    assert all(list(np.asarray(line.get_xdata())) == list(range(1, 9)) for line in lines.values())
    model = build_model(config, VOCABULARY)
    for name, stack in (("encoder: ffn_in", model.encoder), ("ffn_in", model.stack)):
        drawn_deviations = list(np.asarray(lines[name].get_ydata()))
        for layer, deviation in zip(stack.layers, drawn_deviations, strict=True):
            weights = [
                w.detach().flatten() for key, w in layer.named_parameters() if origin_of(key, w).role is Role.FFN_IN
            ]
            assert len(weights) == 3 and deviation == pytest.approx(float(torch.cat(weights).std()), rel=1e-5)


def test_several_activations_share_a_figure(tmp_path: Path) -> None:
    """The name of each stands in the title, and in the legends of functions and derivatives."""
    assert len(drawn("activation", "tanh,gelu", tmp_path)) > 2
    text = (tmp_path / "tanh,gelu.svg").read_text(encoding="utf-8")
    assert [text.count(name) >= 3 for name in ("tanh", "gelu", "relu")] == [True, True, False]


def test_several_positions_share_a_figure_that_shows_their_formulas() -> None:
    """At distance d ALiBi −d · mean 2^(−8h/H), rope √R (Σ cos dω / (R/2) − 1), sinusoids Σ cos dω / (D/2)."""
    names = ("alibi", "rope", "sinusoidal")
    configs = {name: compose([*SIZES, f"model/position={name}"]) for name in names}
    found = {
        str(line.get_label()): np.asarray(line.get_ydata())
        for axes in OVERLAYS["position"](configs).axes
        for line in axes.get_lines()
    }
    heads, width = (configs["rope"]["model"][name] for name in ("num_heads", "d_model"))
    head = width // heads
    for d in (0, 1, 7, 100):
        slope = sum(2 ** (-8 * h / heads) for h in range(1, heads + 1)) / heads
        turned = sum(math.cos(d * 10000 ** (-2 * i / head)) for i in range(head // 2)) / (head // 2)
        added = sum(math.cos(d * 10000 ** (-2 * i / width)) for i in range(width // 2)) / (width // 2)
        expected = (-slope * d, math.sqrt(head) * (turned - 1), added)
        assert [float(found[name][d]) for name in names] == pytest.approx(expected, abs=1e-4)


def test_a_part_draws_itself_as_png(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "part.png"
    assert main(["model/pattern=window", "--out", str(file)]) == 0
    assert capsys.readouterr().out.strip() == str(file)
    pixels = imread(file)
    assert min(pixels.shape[:2]) > 100 and pixels[..., :3].std() > 0.05, "it is neither a stamp nor blank"


def test_a_task_shows_what_is_asked_for_and_the_measured_overlap(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=fact_recall", "task.forms=1", "task.as_source=true"]) == 0
    lines = capsys.readouterr().out.splitlines()
    task = FactRecall(forms=1)
    asked = next(line for line in lines if line.startswith("  source: "))
    entity, relation = (int(word[1:]) for word in asked.split()[2:])
    assert lines[lines.index(asked) + 1] == f"  = «v{int(task.facts[entity, relation])}»"
    assert "overlap: 512 of 512 val items (100.0%) are among 256 different training items" in lines
    assert "test items (100.0%)" in lines[-1]


def test_a_task_shows_its_tags_and_where_it_asks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=dialogue", "task.distractors=0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("  s"))
    words = lines[first].replace("«", "").replace("»", "").split()
    assert words[2] == words[5] and f"«{words[2]}" in lines[first], "the second turn takes up the first one's word"
    turns = lines[first + 1].split()
    assert turns[:6] == ["turn:", "0", "0", "0", "1", "1"] and len(turns) in (len(words), len(words) + 1)
    assert "overlap: 0 of" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model/position=rope", "--out", "rope.gif"], r"must end in \.svg or \.png"),
        (["model/position=rope", "--out", "no/such/folder/rope.svg"], "can be written"),
        (["task=copy", "--out", "copy.svg"], "without a file"),
        (["task=copi"], "did you mean 'copy'"),
        (["model/pattern=causal,window"], "only of activation"),
        (["model/norm=layernorm"], "what can be shown is task=… or a part as model/SLOT=OPTION"),
    ],
    ids=["suffix", "folder", "file", "task", "several", "slot"],
)
def test_wrong_use_is_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        main(arguments)

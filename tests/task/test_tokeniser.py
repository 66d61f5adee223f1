"""Tokenisers: what they lose, what they learn from, that they learn the same everywhere, and what they refuse."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import yaml
from hydra.utils import get_object, instantiate

from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.task.tokeniser import BPE, CLASSIFY, MASK, PAD, Bytes, Characters, Tokeniser, WordPiece
from texts import text as make

WORDS = (
    "The naïve fox, quickly; jumps over 12 lazy dogs!\n\n\tDéjà vu: the foxes' den isn't_empty(日本語 🙂) [MASK] don't."
)
TRAINING = [f"{WORDS} number {number} and {number * 7919 % 1000} more foxes jumping quicker\n" for number in range(200)]
KINDS: dict[str, Tokeniser] = {
    "characters": Characters(),
    "bytes": Bytes(),
    "bpe": BPE(vocab_size=400),
    "wordpiece": WordPiece(vocab_size=200, lowercase=False),
    "wordpiece_uncased": WordPiece(vocab_size=200, lowercase=True),
}


def learned(kind: str, special: tuple[str, ...] = ()) -> Tokeniser:
    return KINDS[kind].with_learned(KINDS[kind].learn(TRAINING, special, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_read_back_unless_the_tokeniser_says_that_it_loses_something(kind: str) -> None:
    tokeniser = learned(kind)
    back = tokeniser.read(tokeniser.write([WORDS])[0])
    assert (back == WORDS) == tokeniser.lossless == (not kind.startswith("wordpiece"))
    if kind == "wordpiece":
        assert back.startswith("The naïve fox , quickly ; jumps over 12 lazy dogs !")
    if kind == "wordpiece_uncased":
        assert back.startswith("the naive fox , quickly ; jumps over 12 lazy dogs !")


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_and_no_text_is_taken_for_one(kind: str) -> None:
    plain, special = learned(kind), learned(kind, (PAD, MASK))
    text = f"{MASK} naïve"
    assert special.learned.tokens[:2] == (PAD, MASK) and special.ids == {PAD: 0, MASK: 1}
    [ids] = special.write([text])
    assert ids.min() >= special.learned.special == 2
    assert special.read([1, *ids]).startswith(MASK)
    if kind in ("characters", "bytes"):
        assert (ids == plain.write([text])[0].astype(int) + 2).all()
    assert len(special.learned.tokens) == len(plain.learned.tokens) + (2 if kind in ("characters", "bytes") else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sizes_of_a_texts_tokens_are_its_bytes(kind: str) -> None:
    # bits_per_byte divides by them. WordPiece's count what is left: no white space, and a byte for an [UNK].
    tokeniser = learned(kind, (PAD,))
    sizes = np.array(tokeniser.learned.sizes)
    assert len(sizes) == len(tokeniser.learned.tokens) and sizes[0] == 0
    for text in (WORDS, "日本語 🙂", "plain"):
        expected = len(text.encode()) if tokeniser.lossless else len("".join(text.split()).encode())
        if kind != "wordpiece_uncased" or text == "plain":
            assert sizes[tokeniser.write([text])[0]].sum() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_each_token_knows_its_characters(kind: str) -> None:
    tokeniser = learned(kind, (PAD,))
    written = tokeniser.write_with_spans(WORDS)
    assert written.ids.tolist() == tokeniser.write([WORDS])[0].tolist()
    covered = set()
    for token, start, end in zip(written.ids, written.starts, written.ends, strict=True):
        covered |= set(range(start, end))
        name = tokeniser.learned.tokens[token].removeprefix("##")
        if kind in ("characters", "wordpiece") and name != "[UNK]":
            assert WORDS[start:end] == name
    expected = range(len(WORDS)) if tokeniser.lossless else [i for i, one in enumerate(WORDS) if not one.isspace()]
    assert covered == set(expected)


def test_bpe_merges_the_commonest_pairs_first() -> None:
    # By hand (Sennrich et al. 2016, algorithm 1): in low×5 lower×2 newest×6 widest×3 e+s stands 9 times, then es+t; no
    # neighbour of est does, and l+o stands 7 times, then lo+w.
    words = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    found = BPE(vocab_size=260).learn(["\n".join(words)], (), 1)
    assert list(found.tokens[256:]) == ["es", "est", "lo", "low"]


def test_bpe_splits_words_and_numbers_as_gpt2_does() -> None:
    # The library's own words for it: a space belongs to the word that follows it.
    words = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(WORDS)
    tokeniser = learned("bpe")
    starts = set(tokeniser.write_with_spans(WORDS).starts.tolist())
    assert {start for _, (start, _) in words} <= starts


@pytest.mark.parametrize("kind", ["wordpiece", "wordpiece_uncased"])
def test_wordpiece_takes_the_longest_piece_first(kind: str) -> None:
    # Devlin et al. 2018, tokenization.py: greedy, from the left, with ## inside a word.
    tokeniser = learned(kind)
    known = set(tokeniser.learned.tokens)
    text = "the quicker fox jumps number 77"
    expected = []
    for word in text.split():
        start = 0
        while start < len(word):
            pieces = [("##" if start else "") + word[start:end] for end in range(len(word), start, -1)]
            piece = next(piece for piece in pieces if piece in known)
            expected.append(piece)
            start += len(piece.removeprefix("##"))
    assert [tokeniser.learned.tokens[token] for token in tokeniser.write([text])[0]] == expected
    assert any(piece.startswith("##") for piece in expected)


def test_a_word_with_an_unknown_character_is_unknown_and_rare_characters_are() -> None:
    tokeniser = learned("wordpiece")
    unknown = tokeniser.learned.unknown
    assert unknown is not None and tokeniser.learned.tokens[unknown] == "[UNK]"
    assert (tokeniser.write(["Ω quickΩly"])[0] == unknown).all()
    rare = WordPiece(vocab_size=100, lowercase=False, min_count=201)
    rare = rare.with_learned(rare.learn([*TRAINING, "Ω"], (), 1))
    assert "Ω" not in rare.learned.tokens and "日" not in rare.learned.tokens and "f" in rare.learned.tokens


@pytest.mark.parametrize("kind", KINDS)
def test_learning_again_gives_the_same(kind: str) -> None:
    # The library counts words in an order that differs each time. Other processes: tests/task/test_purity.py.
    assert KINDS[kind].learn(TRAINING, (PAD,), 1) == KINDS[kind].learn(iter_twice(), (PAD,), 1)


def iter_twice() -> list[str]:
    """The same text, cut elsewhere."""
    return [piece for text in TRAINING for piece in (text[: text.index(" fox")], text[text.index(" fox") :])]


@pytest.mark.parametrize(
    ("tokeniser", "message"),
    [
        (BPE(vocab_size=256), r"vocab_size must be at least 257 \(256 bytes and 1 special tokens\), but is 256"),
        (
            BPE(vocab_size=90_000),
            r"vocab_size must be at most \d+, since the training text has no more pieces of words",
        ),
        (
            WordPiece(vocab_size=50, lowercase=True),
            r"at least \d+ \(its special tokens and single characters\), but is",
        ),
        (
            WordPiece(vocab_size=90_000, lowercase=True),
            r"vocab_size must be at most \d+, since the training text has no",
        ),
        (Characters(min_count=10**6), "min_count must leave some characters, but none occurs 1000000 times"),
    ],
)
def test_a_vocabulary_that_does_not_fit_the_text_is_one_clear_line(tokeniser: Tokeniser, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tokeniser.learn(TRAINING, (PAD,), 1)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Bytes, {"special": [MASK, MASK]}, "task.tokeniser.special must be a list of different words"),
    ],
)
def test_wrong_settings_are_refused(kind: type[Tokeniser], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kind(**settings)


def test_tasks_that_need_other_special_tokens_can_number_them_alike() -> None:
    one = Bytes(special=[CLASSIFY, "[MINE]"]).all_special([PAD, MASK])
    assert one == Bytes(special=[MASK, "[MINE]", PAD]).all_special([CLASSIFY]) == (PAD, CLASSIFY, MASK, "[MINE]")


@pytest.mark.parametrize("group", ["tokeniser", "source"])
def test_a_yaml_holds_exactly_the_settings_of_its_class(group: str) -> None:
    for path in sorted((conf_dir() / "task" / group).glob("*.yaml")):
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
        settings = set(inspect.signature(get_object(node["_target_"])).parameters)
        assert {key for key in node if not key.startswith("_")} == settings and node["_convert_"] == "all", path
        if not any(str(value).startswith(("???", "${")) for value in node.values()):
            instantiate(node)


def test_the_vocabulary_is_learned_from_the_training_text_alone(tmp_path: Path) -> None:
    # The last tenth has words of its own, which become no pieces.
    path = tmp_path / "text.txt"
    path.write_text("several words again\n" * 900 + "zyxwvu tsrqponm\n" * 120, encoding="utf-8")
    task = make(path, tokeniser=BPE(vocab_size=270), split=[0.85, 0.1, 0.05], block=4)
    assert " words" in task.tokens and not any("zy" in token for token in task.tokens)
    assert task.decode(task.corpus.split("test")).endswith("zyxwvu tsrqponm\n")

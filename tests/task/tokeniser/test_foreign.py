"""Tokenisers of other programs: a tokenizer.json as it numbers its tokens, and numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from swapformer.errors import UsageError
from swapformer.interop.tokeniser import read_tokeniser, their_tokeniser
from swapformer.task.tokeniser import Numbers, Tokeniser, TokenizerJson, Trained

TEXT = "def naïve(x):\n    return x  # 日本 <|endoftext|>"


def known(tokeniser: Tokeniser) -> Tokeniser:
    return tokeniser.with_learned(tokeniser.learn((), tokeniser.all_special(()), 1))


def written(folder: Path, **parts: Any) -> Path:
    """A byte-level tokenizer.json with an added special token, as GPT-2's."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    for name, part in parts.items():
        setattr(library, name, part)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=[], show_progress=False)
    library.train_from_iterator([TEXT * 20], trainer)
    library.add_special_tokens(["<|endoftext|>"])
    library.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def test_a_text_is_written_as_the_library_does_and_read_back(tmp_path: Path) -> None:
    file = written(tmp_path)
    library = tokenizers.Tokenizer.from_file(str(file))
    for path in (file, tmp_path):
        found = known(TokenizerJson(path=str(path)))
        plain = TEXT.removesuffix("<|endoftext|>")
        assert found.write([plain])[0].tolist() == library.encode(plain).ids
        ids = found.write([TEXT])[0]
        end = library.token_to_id("<|endoftext|>")
        assert end not in ids  # a text is never taken for a special token
        assert found.read(ids) == TEXT and found.read([end]) == "<|endoftext|>"
        assert found.lossless and sum(found.learned.sizes[number] for number in ids) == len(TEXT.encode())
        assert {" ", "\n", "def"} <= {*found.learned.tokens}
        assert found.learned.sizes[end] == 0 and found.learned.tokens[end] == "<|endoftext|>"
        spans = found.write_with_spans("x = 1")
        assert ["x = 1"[a:b] for a, b in zip(spans.starts, spans.ends, strict=True)] == ["x", " ", "=", " ", "1"]


def test_bytes_are_counted_only_where_tokens_are_bytes(tmp_path: Path) -> None:
    assert not TokenizerJson(path=str(written(tmp_path, normalizer=normalizers.Lowercase()))).lossless
    (tmp_path / "other").mkdir()
    added = {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)}
    assert not TokenizerJson(path=str(written(tmp_path / "other", **added))).lossless
    lost = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    assert not TokenizerJson(
        path=str(written(tmp_path / "other", pre_tokenizer=pre_tokenizers.Sequence(lost)))
    ).lossless
    kept = [pre_tokenizers.Split(" ", "isolated"), pre_tokenizers.Digits(), lost[1]]
    assert TokenizerJson(path=str(written(tmp_path / "other", pre_tokenizer=pre_tokenizers.Sequence(kept)))).lossless
    metaspace = {"pre_tokenizer": pre_tokenizers.Metaspace(), "decoder": decoders.Metaspace()}
    assert not TokenizerJson(path=str(written(tmp_path / "other", **metaspace))).lossless


@pytest.mark.parametrize("strips", ["lstrip", "rstrip", None])
def test_an_added_token_that_takes_spaces_along_loses_bytes(tmp_path: Path, strips: str | None) -> None:
    file = written(tmp_path)
    library = tokenizers.Tokenizer.from_file(str(file))
    library.add_tokens([tokenizers.AddedToken("<x>", **({strips: True} if strips else {}), normalized=False)])
    library.save(str(file))
    tokeniser = known(TokenizerJson(path=str(file)))
    whole = tokeniser.read(tokeniser.write(["a  <x>  b"])[0]) == "a  <x>  b"
    assert tokeniser.lossless == whole == (strips is None)


def test_what_lacks_a_byte_loses_text_and_is_not_lossless(tmp_path: Path) -> None:
    """By its own file and by an import, which makes it a BPE of ours."""
    for change, whole in (({}, True), ({"lacks": "Ä"}, False), ({"normalizer": {"type": "Lowercase"}}, False)):
        spec = json.loads(written(tmp_path).read_text(encoding="utf-8"))
        if "lacks" in change:
            spec["model"]["vocab"] = {
                f"{piece}{piece}" if piece == "Ã" else piece: n for piece, n in spec["model"]["vocab"].items()
            }
            spec["model"]["merges"] = []
        else:
            spec |= change
        (tmp_path / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
        (tmp_path / "imported.json").write_text(read_tokeniser(tmp_path / "tokenizer.json", 400).text, encoding="utf-8")
        for one in (TokenizerJson(path=str(tmp_path)), Trained(path=str(tmp_path / "imported.json"))):
            found = known(one)
            assert found.lossless == one.lossless == whole, (one, change)
            assert (found.read(found.write(["Äpfel"])[0]) == "Äpfel") == whole


def test_merges_that_are_left_out_at_random_are_refused(tmp_path: Path) -> None:
    spec = json.loads(written(tmp_path).read_text(encoding="utf-8"))
    spec["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    for read in (
        lambda: TokenizerJson(path=str(tmp_path)).settings(),
        lambda: read_tokeniser(tmp_path / "tokenizer.json", 400),
    ):
        with pytest.raises(UsageError, match=r"`dropout` is 0.5\); set it to null"):
            read()


def test_a_trial_that_kept_it_writes_without_the_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    before = known(TokenizerJson(path=str(file)))
    (tmp_path / "kept").write_text(before.to_json())
    file.unlink()
    after = known(Trained(path=str(tmp_path / "kept")))
    assert after.write([TEXT])[0].tolist() == before.write([TEXT])[0].tolist()
    assert after.lossless and after.unit == before.unit
    spec = their_tokeniser(before.to_json())
    assert tokenizers.Tokenizer.from_str(json.dumps(spec)).get_vocab_size() == len(before.learned.tokens)


def test_another_file_is_another_unit(tmp_path: Path) -> None:
    first = known(TokenizerJson(path=str(written(tmp_path))))
    (tmp_path / "other").mkdir()
    second = known(TokenizerJson(path=str(written(tmp_path / "other", normalizer=normalizers.Lowercase()))))
    assert first.unit != second.unit and first.settings() != second.settings()


@pytest.mark.parametrize("content", [None, "{", "[]", '{"model": {"type": "Unknown"}}'])
def test_what_is_no_tokeniser_is_refused_in_one_line(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UsageError, match=r"task.tokeniser.path must lead to a tokenizer.json") as refused:
        TokenizerJson(path=str(tmp_path)).settings()
    assert "\n" not in str(refused.value)


def test_special_tokens_of_a_task_are_not_there(tmp_path: Path) -> None:
    for tokeniser in (TokenizerJson(path=str(written(tmp_path))), Numbers(vocab_size=9)):
        with pytest.raises(UsageError, match=r"needs the special tokens \[MASK\]"):
            tokeniser.all_special(["[MASK]"])


def test_numbers_are_written_as_such() -> None:
    numbers = known(Numbers(vocab_size=20))
    assert numbers.write(["17 4", ""])[0].tolist() == [17, 4] and numbers.read([17, 4]) == "17 4"
    assert not numbers.lossless and numbers.learned.tokens[17] == "17"
    for wrong in ("20", "x", "-1"):
        with pytest.raises(UsageError, match="must be numbers below 20"):
            numbers.write([wrong])
    with pytest.raises(UsageError, match="the source has text; take another"):
        numbers.learn(["a text"], (), 1)

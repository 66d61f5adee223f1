"""Tokenisers go with their checkpoints: the same text is the same input, and the model says the same of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.interop.tokeniser import _size, read_tokeniser, their_tokeniser
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import compose, task_of
from swapformer.task.tokeniser import Bytes, Trained
from swapformer.training.assemble import build_model
from swapformer.training.warm_start import load_initial_weights

transformers = pytest.importorskip("transformers")

WORDS = "the quick brown fox jumps over the lazy dog, and the naïve dog looks up at the quick fox. " * 40
TEXT = "the naïve fox, over the dog"
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def wordpiece() -> Tokenizer:
    """As BERT's: unused pieces before the special ones, which lie in the middle."""
    library = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.train_from_iterator([WORDS], trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[unused0]"]))
    pieces = {piece: number for piece, number in library.get_vocab().items() if piece != "[unused0]"}
    order = ["[unused0]", *BERT_SPECIAL, *sorted(pieces, key=pieces.__getitem__)]
    spec = json.loads(library.to_str())
    spec["model"]["vocab"] = {piece: number for number, piece in enumerate(order)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    spec["added_tokens"] = [{"id": order.index(name), "content": name, **flags} for name in BERT_SPECIAL]
    return Tokenizer.from_str(json.dumps(spec))


def byte_pairs() -> Tokenizer:
    """As GPT-2's: bytes, and the end of a text last."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator([WORDS], trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet))
    library.add_special_tokens(["<|endoftext|>"])
    return library


def exported(folder: Path, library: Tokenizer, name: str, **sizes: Any) -> Any:
    """A model of theirs in a folder with its tokeniser; its vocabulary is padded, as many are."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(vocab_size=library.get_vocab_size() + 3, **sizes)
    kind = "ForMaskedLM" if name == "Bert" else "LMHeadModel"
    model = getattr(transformers, f"{name}{kind}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    library.save(str(folder / "tokenizer.json"))
    return model


BERT: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0
}  # fmt: skip


@pytest.mark.parametrize(
    ("library", "name", "sizes", "task"),
    [(wordpiece(), "Bert", BERT, "masked"), (byte_pairs(), "GPT2", GPT2, "text")],
    ids=["bert", "gpt2"],
)
def test_of_the_same_text_an_imported_model_says_what_theirs_says(
    library: Tokenizer, name: str, sizes: dict[str, Any], task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    model = exported(tmp_path / "theirs", library, name, **sizes)
    (tmp_path / "text.txt").write_text(WORDS)
    capsys.readouterr()
    assert main(["import", "theirs", "--json"]) == 0
    overrides = json.loads(capsys.readouterr().out)["overrides"]
    place = ["task/source=files", "task.source.path=text.txt", "task.block=16", "task.split=[0.8,0.1,0.1]"]
    config = compose([f"task={task}", *place, *overrides])
    mine = task_of(config)
    ours = build_model(config, replace(mine.interface, segments=2 if name == "Bert" else 0)).eval()
    found = load_initial_weights(ours, mine, config)
    assert not found.fresh and not found.left

    ids, their_ids = mine.encode(TEXT), library.encode(TEXT, add_special_tokens=False).ids
    assert mine.decode(ids) == library.decode(their_ids)
    number = read_tokeniser(tmp_path / "theirs" / "tokenizer.json", model.config.vocab_size).theirs
    assert number[ids].tolist() == their_ids
    with torch.no_grad():
        expected = model(torch.tensor([their_ids])).logits[..., number]
        segments = torch.zeros(1, len(ids), dtype=torch.long)
        answer = ours(torch.tensor([ids]), Tokens.of(len(ids), tags={"segment": segments}))
    assert torch.allclose(answer, expected, rtol=1e-3, atol=1e-3)


def test_an_imported_tokeniser_neither_cuts_nor_fills_and_counts_bytes(tmp_path: Path) -> None:
    """A file that was saved with truncation and padding; a piece may be a part of a character's bytes."""
    library = byte_pairs()
    library.enable_truncation(4)
    library.enable_padding(length=6)
    library.save(str(tmp_path / "tokenizer.json"))
    read = read_tokeniser(tmp_path / "tokenizer.json", library.get_vocab_size())
    (tmp_path / "vocabulary.json").write_text(read.text)
    mine = Trained(path=str(tmp_path / "vocabulary.json"))
    mine = mine.with_learned(mine.learn([], [], 1))
    text = "the cat’s naïve 你好 " * 3
    ids = mine.write([text])[0]
    assert mine.read(ids) == text
    assert sum(mine.learned.sizes[number] for number in ids) == len(text.encode())


def test_bytes_that_no_piece_has_count_once() -> None:
    assert [_size("<0x0A>", "<0x0A>", "BPE", False), _size("▁the", " the", "BPE", False)] == [1, 4]


def test_only_wordpiece_writes_two_signs_that_are_no_text() -> None:
    assert [_size("##ing", "##ing", kind, False) for kind in ("WordPiece", "BPE", "Unigram")] == [3, 5, 5]


@pytest.mark.parametrize("tokeniser", ["bpe", "wordpiece_uncased"])
def test_a_trained_tokeniser_leaves_with_its_model(
    tokeniser: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(WORDS)
    size = 290 if tokeniser == "bpe" else 60
    task = [f"task/tokeniser={tokeniser}", f"task.tokeniser.vocab_size={size}", "task.tokeniser.special=['<eos>']"]
    place = ["task/source=files", "task.source.path=text.txt", "task.block=16", "task.batch_size=2"]
    shape = ["model.d_model=16", "model.num_heads=2", "model.num_layers=1", "model/position=learned"]
    run = ["budget.steps=1", "schedule.warmup_steps=0", "eval.final_batches=1", "eval.batches=1"]
    assert main(["train", *task, *place, *shape, *run]) == 0
    (trial,) = (path.name for path in Path("runs/trials").iterdir())
    assert main(["export", trial, "out", "--format", "gpt2"]) == 0
    theirs = transformers.AutoTokenizer.from_pretrained("out")
    mine = Trained(path=f"runs/trials/{trial}")
    mine = mine.with_learned(mine.learn([], [], 1))
    ids = mine.write([TEXT])[0].tolist()
    assert theirs(TEXT, add_special_tokens=False)["input_ids"] == ids
    assert theirs.convert_tokens_to_ids("<eos>") == 0
    again = read_tokeniser(Path("out/tokenizer.json"), size)
    assert again.theirs.tolist() == list(range(size))


class TestRefusals:
    def test_a_kind_that_there_is_not_keeps_the_numbers(self, tmp_path: Path) -> None:
        library = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0))
        library.save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(UsageError, match=r"must be only BPE or WordPiece, but it is Unigram"):
            read_tokeniser(tmp_path / "tokenizer.json", 2)

    def test_more_symbols_than_the_model_has(self, tmp_path: Path) -> None:
        byte_pairs().save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(UsageError, match=r"fewer symbols than the model's 100"):
            read_tokeniser(tmp_path / "tokenizer.json", 100)

    def test_pieces_that_were_added(self, tmp_path: Path) -> None:
        library = byte_pairs()
        library.add_tokens(["  "])
        library.save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(UsageError, match=r"adds '  ' to its pieces"):
            read_tokeniser(tmp_path / "tokenizer.json", 300)

    def test_what_is_no_tokeniser(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text("[]")
        with pytest.raises(UsageError, match=r"must be a tokenizer\.json"):
            read_tokeniser(tmp_path / "tokenizer.json", 300)

    def test_one_that_their_library_does_not_have_stays(self) -> None:
        known = Bytes().learn([], [], 1)
        assert their_tokeniser(Bytes().with_learned(known).to_json()) is None

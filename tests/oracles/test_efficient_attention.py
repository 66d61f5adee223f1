"""Nyströmformer and Reformer of Hugging Face `transformers` compute what ours do in float64, forwards and backwards.

One attention layer without positions, weights drawn wide, no output map. Neither oracle casts inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from swapformer.model.attention import Attention, Nystrom, Reformer, reformer
from swapformer.model.attention.buckets import hashes
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.layers import Linear
from swapformer.model.pattern import Causal, Full, Pattern
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens

transformers = pytest.importorskip("transformers")

WIDTH, HEADS, LENGTH = 16, 2, 24
DIMS = Dims(WIDTH, 1, HEADS, WIDTH // HEADS, LENGTH, 5, bias=False)


@pytest.fixture(scope="module", autouse=True)
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def widened(part: Attention, width: float) -> Any:
    """The part with wide weights and the identity as output map."""
    generator = torch.Generator().manual_seed(2)
    out: Linear = part.out  # type: ignore[assignment]
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.copy_(width * torch.randn(parameter.shape, generator=generator))
        out.weight.copy_(torch.eye(WIDTH))
    return part.double().eval()


def lend(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for mine, theirs in pairs:
            theirs.copy_(mine.reshape(theirs.shape))


def assert_same(
    part: Attention, theirs: Callable[[Tensor], Tensor], pairs: Sequence[tuple[Tensor, Tensor]], rows: int = 2
) -> None:
    """Outputs, and gradients by the input and by each pair of weights."""
    x = torch.randn(rows, LENGTH, WIDTH, generator=torch.Generator().manual_seed(3)).requires_grad_()
    tokens = Tokens.of(LENGTH)
    mine, other = part(x, Context(tokens, tokens, torch.float64), Position(DIMS)), theirs(x)
    probe = torch.randn(mine.shape, generator=torch.Generator().manual_seed(4))
    grads = [
        torch.autograd.grad((out * probe).sum(), (x, *(pair[side] for pair in pairs)))
        for side, out in enumerate((mine, other))
    ]
    both = [(mine, other), *((a, b.reshape(a.shape)) for a, b in zip(*grads, strict=True))]
    gap = max(((a - b).abs().max() / (1 + b.abs().max())).item() for a, b in both)
    print(f"largest difference {gap:.1e}")
    assert gap <= 1e-10
    assert all(grad.any() for grad in grads[0])


@pytest.mark.parametrize("convolution", [None, 5])
@pytest.mark.parametrize("landmarks", [3, 8, 12])
@pytest.mark.parametrize("start", ["exact", "original"])
def test_nystromformer(start: str, landmarks: int, convolution: int | None) -> None:
    """`original` starts the inverse from one maximum over the whole batch: the same for a row with one head alone."""
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    heads = HEADS if start == "exact" else 1
    config = transformers.NystromformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=heads,
        num_landmarks=landmarks,
        segment_means_seq_len=LENGTH,
        conv_kernel_size=convolution or 1,
        attention_probs_dropout_prob=0.0,
    )
    module = NystromformerSelfAttention(config).eval()
    module.init_option = start  # the constructor's own way to `exact` raises TypeError in 5.23
    module.conv_kernel_size = convolution  # the forward knows None, the configuration does not
    dims = Dims(WIDTH, 1, heads, WIDTH // heads, LENGTH, 5, bias=True)
    settings = {"landmarks": landmarks, "iterations": 6, "convolution": convolution}
    part = widened(Nystrom(dims, pattern=Full(dims), **settings), 0.4)
    with torch.no_grad():
        part.out.bias.zero_()
    names = ("query", "key", "value")
    pairs = [
        (getattr(getattr(part, n), kind), getattr(getattr(module, n), kind))
        for n in names
        for kind in ("weight", "bias")
    ]
    if convolution is not None:
        pairs.append((part.filters.weight, module.conv.weight))
    lend(pairs)
    assert_same(part, lambda x: module(x)[0], pairs, rows=2 if start == "exact" else 1)


def test_nystromformer_of_transformers_takes_padding_into_its_landmarks_and_ours_does_not() -> None:
    """It hides padding from the landmarks' queries alone, so what stands at padded places changes the others."""
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    config = transformers.NystromformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_landmarks=4, segment_means_seq_len=LENGTH, conv_kernel_size=1
    )
    torch.manual_seed(0)  # transformers draws its weights from the global state
    module = NystromformerSelfAttention(config).eval()
    part = widened(Nystrom(DIMS, pattern=Full(DIMS), landmarks=4, iterations=6, convolution=None), 0.4)
    x = torch.randn(1, LENGTH, WIDTH, generator=torch.Generator().manual_seed(3))
    padding = torch.arange(LENGTH)[None] >= LENGTH - 5
    other = torch.where(padding[..., None], -x, x)
    hidden = torch.zeros(1, 1, 1, LENGTH).masked_fill(padding[:, None, None], torch.finfo(torch.float64).min)
    tokens = Tokens.of(LENGTH, padding=padding)

    def change(run: Callable[[Tensor], Tensor]) -> float:
        return (run(x) - run(other))[~padding].abs().max().item()

    with torch.no_grad():
        module.conv.weight.zero_()
        assert change(lambda y: module(y, attention_mask=hidden)[0]) > 1e-3
        assert change(lambda y: part(y, Context(tokens, tokens, torch.float64), Position(DIMS))) == 0


def lsh(chunk: int, rounds: int, before: int, causal: bool, buckets: int = 4) -> nn.Module:
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    config = transformers.ReformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        attention_head_size=WIDTH // HEADS,
        lsh_attn_chunk_length=chunk,
        num_hashes=rounds,
        num_buckets=buckets,
        lsh_num_chunks_before=before,
        lsh_num_chunks_after=0,
        hash_seed=7,
        is_decoder=causal,
        lsh_attention_probs_dropout_prob=0.0,
    )
    module: nn.Module = LSHSelfAttention(config).eval()
    return module


def ours(pattern: Pattern, chunk: int, rounds: int, buckets: int = 4) -> Any:
    return widened(Reformer(DIMS, pattern=pattern, buckets=buckets, rounds=rounds, chunk=chunk, seed=0), 0.4)


def in_one(rounds: int, chunk: int) -> Tensor:
    """Every place in one bucket, in every round."""
    return torch.zeros(rounds, LENGTH, dtype=torch.int64)


def in_a_grid(rounds: int, chunk: int) -> Tensor:
    """Buckets of exactly `chunk` places, of which two rounds share no pair: rows and columns of a grid, shuffled."""
    place = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(1))
    return torch.stack([place // chunk, place % (LENGTH // chunk)][:rounds])


# transformers cuts the sorted row into chunks without a look at buckets; ours are cut bucket by bucket (see Reformer).
# The two agree where buckets end where chunks end: one bucket with the chunk before in sight, which a causal mask keeps
# from wrapping around; or buckets of one chunk each without it. Over rounds transformers counts a pair as often as it
# meets, ours once, as the paper: the same where all pairs meet equally often.
@pytest.mark.parametrize(
    ("buckets", "chunk", "rounds", "before", "causal"),
    [
        pytest.param(in_one, 4, 1, 1, True, id="one-bucket"),
        pytest.param(in_one, 4, 3, 1, True, id="one-bucket-three-rounds"),
        pytest.param(in_one, 8, 2, 1, True, id="one-bucket-longer-chunks"),
        pytest.param(in_a_grid, 6, 1, 0, True, id="grid-causal"),
        pytest.param(in_a_grid, 6, 1, 0, False, id="grid-full"),
        pytest.param(in_a_grid, 4, 2, 0, True, id="grid-two-rounds-causal"),
        pytest.param(in_a_grid, 4, 2, 0, False, id="grid-two-rounds-full"),
    ],
)
def test_reformer_with_the_same_buckets(
    buckets: Callable[[int, int], Tensor],
    chunk: int,
    rounds: int,
    before: int,
    causal: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = buckets(rounds, chunk).expand(2, HEADS, -1, -1)
    monkeypatch.setattr(reformer, "hashes", lambda *_: given)
    part, module = ours(Causal(DIMS) if causal else Full(DIMS), chunk, rounds), lsh(chunk, rounds, before, causal)
    apart = given + 100 * torch.arange(rounds)[:, None]
    pairs = [(part.query.weight, module.query_key.weight), (part.value.weight, module.value.weight)]
    lend(pairs)
    assert_same(part, lambda x: module(x, buckets=apart).hidden_states, pairs)


@pytest.mark.parametrize("causal", [True, False])
def test_reformer_with_enough_rounds_is_full_attention_with_shared_queries(causal: bool) -> None:
    """transformers forms all pairs where a row is no longer than a chunk; 40 rounds of 2 buckets miss no pair."""
    part = ours(Causal(DIMS) if causal else Full(DIMS), LENGTH, rounds=40, buckets=2)
    module = lsh(LENGTH, 1, 1, causal)
    pairs = [(part.query.weight, module.query_key.weight), (part.value.weight, module.value.weight)]
    lend(pairs)
    assert_same(part, lambda x: module(x).hidden_states, pairs)


@pytest.mark.parametrize("buckets", [2, 8])
def test_reformer_hashes_as_transformers_does(buckets: int) -> None:
    """With its rotations, drawn [H, E, R, N/2] from its seed."""
    rounds, width = 3, WIDTH // HEADS
    torch.manual_seed(7)
    rotations = torch.randn(HEADS, width, rounds, buckets // 2)
    vectors = torch.randn(2, HEADS, LENGTH, width)
    theirs = lsh(4, rounds, 1, True, buckets)._hash_vectors(vectors, rounds, None).view(2, HEADS, rounds, LENGTH)
    mine = hashes(vectors, rotations.transpose(1, 2))
    assert torch.equal(mine + buckets * torch.arange(rounds)[:, None], theirs)
    assert len(mine.unique()) == buckets


def test_chunks_of_the_sorted_row_leak_the_future_and_chunks_of_buckets_do_not() -> None:
    """Why ours differ from the paper's and transformers' chunks: there later places move the chunks of earlier ones."""
    part, module = ours(Causal(DIMS), 4, 1, buckets=4), lsh(4, 1, 1, True)
    x = torch.randn(1, LENGTH, WIDTH, generator=torch.Generator().manual_seed(3))
    later = x.clone()
    later[:, LENGTH // 2 :] = torch.randn(1, LENGTH // 2, WIDTH, generator=torch.Generator().manual_seed(4))
    tokens = Tokens.of(LENGTH)

    def change(run: Callable[[Tensor], Tensor]) -> float:
        return (run(x) - run(later))[:, : LENGTH // 2].abs().max().item()

    with torch.no_grad():
        assert change(lambda y: module(y).hidden_states) > 0.01
        assert change(lambda y: part(y, Context(tokens, tokens, torch.float64), Position(DIMS))) < 1e-12

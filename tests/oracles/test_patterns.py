"""Windows, Longformer and BigBird of Hugging Face `transformers` see what our patterns see, and so do gradients.

One attention layer without positions, weights drawn wide. Where transformers casts to float32 inside, the cast is named
and the bound is 1e-5; elsewhere it is 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from swapformer.model.attention import MultiHead
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import Reference
from swapformer.model.layers import Linear
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import BigBird, Longformer, Pattern, Window
from swapformer.model.position import Position
from swapformer.model.qk_norm import QKNorm
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens

transformers = pytest.importorskip("transformers")

WIDTH, HEADS, LENGTH = 16, 2, 32
DIMS = Dims(WIDTH, 1, HEADS, WIDTH // HEADS, LENGTH, 5)


@pytest.fixture(scope="module", autouse=True)
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def ours(pattern: Pattern, exponent: float = -0.5, width: float = 0.4) -> MultiHead:
    parts: dict[str, Any] = {"normaliser": Softmax(DIMS), "kernel": Reference(DIMS), "qk_norm": QKNorm(DIMS)}
    part = MultiHead(DIMS, score=Dot(DIMS, exponent=exponent), pattern=pattern, extension={}, **parts)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.copy_(width * torch.randn(parameter.shape, generator=generator))
        part.out.weight.copy_(torch.eye(WIDTH))
        assert part.out.bias is not None
        part.out.bias.zero_()
    return part.eval()


def lend(source: Linear, *targets: nn.Linear) -> None:
    """Copy one of our linear maps into theirs; a bias that they do not have must be zero."""
    with torch.no_grad():
        for target in targets:
            target.weight.copy_(source.weight)
            assert source.bias is not None
            if target.bias is None:
                source.bias.zero_()
            else:
                target.bias.copy_(source.bias)


def assert_same(part: MultiHead, theirs: Callable[[Tensor], Tensor], weight: Tensor, bound: float) -> None:
    """Outputs, gradients by the input and by the query's weight, which is `weight` on their side."""
    x = torch.randn(2, LENGTH, WIDTH, generator=torch.Generator().manual_seed(3)).requires_grad_()
    tokens = Tokens.of(LENGTH)
    mine = part(x, Context(tokens, tokens, torch.float64), Position(DIMS))
    other = theirs(x)
    probe = torch.randn(mine.shape, generator=torch.Generator().manual_seed(4))
    grads = [
        torch.autograd.grad((out * probe).sum(), (x, query))
        for out, query in ((mine, part.query.weight), (other, weight))
    ]
    gaps = [(mine - other).abs().max().item(), *((a - b).abs().max().item() for a, b in zip(*grads, strict=True))]
    print(f"largest difference {max(gaps):.1e}")
    assert max(gaps) <= bound
    assert all(grad.any() for grad in grads[0])


@pytest.mark.parametrize("window", [2, 5, 40])
def test_mistral_window(window: int) -> None:
    """MistralAttention casts its softmax to float32."""
    from transformers.masking_utils import create_sliding_window_causal_mask
    from transformers.models.mistral.modeling_mistral import MistralAttention

    config = transformers.MistralConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        sliding_window=window,
        attn_implementation="eager",
    )
    module, part = MistralAttention(config, layer_idx=0), ours(Window(DIMS, before=window - 1))
    for name in ("query", "key", "value", "out"):
        lend(getattr(part, name), getattr(module, f"{name[0]}_proj"))

    def theirs(x: Tensor) -> Tensor:
        turn = torch.ones(1, LENGTH, WIDTH // HEADS), torch.zeros(1, LENGTH, WIDTH // HEADS)
        mask = create_sliding_window_causal_mask(
            config=config,
            inputs_embeds=x,
            attention_mask=None,
            past_key_values=None,
            position_ids=torch.arange(LENGTH)[None],
        )
        return module(x, position_embeddings=turn, attention_mask=mask)[0]

    assert_same(part, theirs, module.q_proj.weight, 1e-5)


def test_gpt_neo_window() -> None:
    """GPTNeoSelfAttention casts queries and keys to float32, and does not scale."""
    from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

    config = transformers.GPTNeoConfig(
        hidden_size=WIDTH,
        num_heads=HEADS,
        num_layers=1,
        attention_types=[[["local"], 1]],
        window_size=6,
        max_position_embeddings=LENGTH,
        attention_dropout=0.0,
        resid_dropout=0.0,
    )
    module, part = GPTNeoSelfAttention(config, "local", 0).eval(), ours(Window(DIMS, before=5), exponent=0.0, width=0.3)
    for name, source in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("out", "out_proj")):
        lend(getattr(part, name), getattr(module, source))
    assert_same(part, lambda x: module(x)[0], module.q_proj.weight, 1e-5)


@pytest.mark.parametrize("places", [[], [0], [0, 9, 31]])
def test_longformer(places: list[int]) -> None:
    """LongformerSelfAttention casts its softmax to float32; its projections of global places are set to the others."""
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = transformers.LongformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_window=[8], attention_probs_dropout_prob=0.0
    )
    module, part = LongformerSelfAttention(config, layer_id=0), ours(Longformer(DIMS, before=4, after=4, places=places))
    for name in ("query", "key", "value"):
        lend(getattr(part, name), getattr(module, name), getattr(module, f"{name}_global"))
    mask = torch.zeros(2, LENGTH)
    mask[:, places] = 10000.0

    def theirs(x: Tensor) -> Tensor:
        # A global query goes through the global projection, so both carry the gradient of our one matrix.
        module.query_global.weight = module.query.weight
        return module(
            x,
            attention_mask=mask,
            is_index_masked=mask < 0,
            is_index_global_attn=mask > 0,
            is_global_attn=bool(places),
        )[0]

    assert_same(part, theirs, module.query.weight, 1e-5)


def test_bigbird(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block sparse attention in training mode, the only one with random blocks; ours are given those that it draws."""
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    block, count = 4, LENGTH // 4
    config = transformers.BigBirdConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        block_size=block,
        num_random_blocks=1,
        attention_probs_dropout_prob=0.0,
        use_bias=True,
    )
    module = BigBirdBlockSparseAttention(config, seed=1).train()
    original = module._bigbird_block_rand_mask_with_head
    drawn: list[np.ndarray[Any, Any]] = []

    def for_all_heads(**settings: Any) -> list[Any]:
        drawn.append(original(**settings)[0])
        return [drawn[-1]] * HEADS

    monkeypatch.setattr(module, "_bigbird_block_rand_mask_with_head", for_all_heads)
    masks = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(2, LENGTH), block)
    blocked, band, from_mask, to_mask = masks

    def theirs(x: Tensor) -> Tensor:
        return module(x, band, from_mask, to_mask, blocked, blocked)[0]

    part = ours(BigBird(DIMS, block=block, before=1, after=1, random_before=0, first=1, last=1, seed=0))
    for name in ("query", "key", "value"):
        lend(getattr(part, name), getattr(module, name))
    with torch.no_grad():
        theirs(torch.zeros(2, LENGTH, WIDTH))
    rows = drawn[0]

    def their_blocks(b: int, blocks: int) -> Tensor:
        return torch.tensor(rows[b - 1] if 0 < b < count - 1 else [], dtype=torch.int64)

    monkeypatch.setattr(part.pattern, "random_blocks", their_blocks)
    assert_same(part, theirs, module.query.weight, 1e-10)

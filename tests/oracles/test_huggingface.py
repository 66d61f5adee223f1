"""GPT-2 and Llama of Hugging Face `transformers` compute the same function in float64, layer by layer and backwards.

The weights are drawn wide (standard deviation 0.3), so that a wrong term shows. Where transformers casts to float32
inside, the cast is named and the bound is 1e-5; elsewhere it is 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from configs import small
from swapformer.model.topology import Decoder
from swapformer.training.assemble import build_model

transformers = pytest.importorskip("transformers")

VOCABULARY, LENGTH = 17, 20
Mapping = dict[str, Tensor]


@pytest.fixture(scope="module", autouse=True)
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def widen(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def gpt2() -> tuple[nn.Module, list[str], Callable[[nn.Module], Mapping]]:
    """GPT-2: learned positions, LayerNorm before, tanh GELU, biases, tied head."""
    settings = {
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": LENGTH,
        "vocab_size": VOCABULARY,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    drop = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings, **drop, attn_implementation="eager"))
    ours = ["model/position=learned", "model/activation=gelu_tanh", "model.num_layers=3", f"model.max_len={LENGTH}"]

    def weights(model: nn.Module) -> Mapping:
        state: Mapping = dict(model.state_dict())
        out = {"embedding.weight": state["transformer.wte.weight"]}
        out["stack.positions.Learned.table.weight"] = state["transformer.wpe.weight"]
        for kind in ("weight", "bias"):
            out[f"stack.final_norm.{kind}"] = state[f"transformer.ln_f.{kind}"]
            for i in range(3):
                a, b = f"transformer.h.{i}", f"stack.layers.{i}"
                fused = state[f"{a}.attn.c_attn.{kind}"].chunk(3, dim=-1)
                for name, part in zip(("query", "key", "value"), fused, strict=True):
                    out[f"{b}.attention.{name}.{kind}"] = part.t()
                for name, source in (
                    ("attention.out", "attn.c_proj"),
                    ("ffn.up", "mlp.c_fc"),
                    ("ffn.down", "mlp.c_proj"),
                ):
                    out[f"{b}.{name}.{kind}"] = state[f"{a}.{source}.{kind}"].t()
                for j in range(2):
                    out[f"{b}.block.sublayers.{j}.before.{kind}"] = state[f"{a}.ln_{j + 1}.{kind}"]
        return out

    return theirs, ours, weights


def llama(num_kv_heads: int) -> tuple[nn.Module, list[str], Callable[[nn.Module], Mapping]]:
    """Llama: rotary halves, RMSNorm before, SwiGLU, shared key-value heads, no biases, untied head."""
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=52,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=num_kv_heads,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
        rms_norm_eps=1e-6,
        attn_implementation="eager",
    )
    theirs = transformers.LlamaForCausalLM(config)
    ours = [
        "model/position=rope",
        "model/norm=rmsnorm",
        "model/ffn=glu",
        "model.ffn.width=52",
        "model/activation=silu",
        "model/attention=gqa",
        f"model.attention.num_kv_heads={num_kv_heads}",
        "model.bias=false",
        "model.topology.tie_embeddings=false",
        "model.num_layers=3",
    ]

    def weights(model: nn.Module) -> Mapping:
        state: Mapping = dict(model.state_dict())
        out = {"embedding.weight": state["model.embed_tokens.weight"], "head.weight": state["lm_head.weight"]}
        out["stack.final_norm.weight"] = state["model.norm.weight"]
        names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
        for i in range(3):
            a, b = f"model.layers.{i}", f"stack.layers.{i}"
            for name, source in names.items():
                out[f"{b}.attention.{name}.weight"] = state[f"{a}.self_attn.{source}.weight"]
            for name in ("gate", "up", "down"):
                out[f"{b}.ffn.{name}.weight"] = state[f"{a}.mlp.{name}_proj.weight"]
            out[f"{b}.block.sublayers.0.before.weight"] = state[f"{a}.input_layernorm.weight"]
            out[f"{b}.block.sublayers.1.before.weight"] = state[f"{a}.post_attention_layernorm.weight"]
        return out

    return theirs, ours, weights


@contextmanager
def layer_outputs(model: Decoder) -> Iterator[list[Tensor]]:
    """What each of our layers returns."""
    seen: list[Tensor] = []
    hooks = [layer.register_forward_hook(lambda _m, _i, out: seen.append(out)) for layer in model.stack.layers]
    yield seen
    for hook in hooks:
        hook.remove()


# Llama: transformers computes the rotary angles and the RMSNorm statistics in float32 (LlamaRotaryEmbedding.forward,
# LlamaRMSNorm.forward) and the softmax in float32 (eager_attention_forward); GPT-2's path stays in float64.
CASES: list[Any] = [
    pytest.param(gpt2, (), 1e-10, id="gpt2"),
    pytest.param(llama, (4,), 1e-5, id="llama-mha"),
    pytest.param(llama, (2,), 1e-5, id="llama-gqa"),
    pytest.param(llama, (1,), 1e-5, id="llama-mqa"),
]


@pytest.mark.parametrize("kernel", ["reference", "sdpa"])
@pytest.mark.parametrize(("make", "arguments", "bound"), CASES)
def test_outputs_and_gradients_agree(
    make: Any, arguments: tuple[int, ...], bound: float, kernel: str, record_property: Any
) -> None:
    torch.manual_seed(0)  # transformers draws its weights from the global state
    theirs, overrides, weights = make(*arguments)
    widen(theirs)
    ours = build_model(small([*overrides, f"model/kernel={kernel}"]), VOCABULARY).double().eval()
    assert isinstance(ours, Decoder)
    mapped = weights(theirs)
    assert set(mapped) == set(ours.state_dict()), "the mapping must name every weight"
    ours.load_state_dict({name: weight.clone() for name, weight in mapped.items()})

    ids = torch.randint(VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    with layer_outputs(ours) as mine:
        logits = ours(ids)
    expected = theirs.eval()(ids, output_hidden_states=True)
    # transformers reports the stream before each layer, and the last one normed: the last layer shows in the logits.
    pairs = [*zip(mine[:-1], expected.hidden_states[1:-1], strict=True), (logits, expected.logits)]
    gap = max(((a - b).abs().max() / (1 + b.abs().max())).item() for a, b in pairs)
    assert gap <= bound
    record_property("largest_difference", gap)

    probe = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2))
    (logits * probe).sum().backward()
    (expected.logits * probe).sum().backward()
    grads = weights(_GradientView(theirs))
    for name, parameter in ours.named_parameters():
        scale = 1 + grads[name].abs().max().item()
        assert (parameter.grad - grads[name]).abs().max().item() <= bound * scale, name


class _GradientView(nn.Module):
    """A model whose state is another's gradients, so that the same mapping names them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.grads = {name: p.grad for name, p in model.named_parameters(remove_duplicate=False) if p.grad is not None}

    def state_dict(self, *args: Any, **kwargs: Any) -> Mapping:  # type: ignore[override]
        return self.grads

"""Position encodings against Hugging Face `transformers`, torch, and the papers' definitions as plain loops.

Everything runs in float64 on wide weights, outputs and gradients alike, and agrees to 1e-10; where transformers casts
to float32 inside, the cast is named beside the bound of 1e-5. Parts that transformers no longer has (relative_key and
Transformer-XL left in version 5) or never had are held to a loop over the formula of their paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from configs import small
from swapformer.model.context import Context
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.training.assemble import build_plan

HEADS, LENGTH, WIDTH = 4, 9, 8
EXACT, FLOAT32 = 1e-10, 1e-5
Report = Callable[[str, object], None]


def part(option: str, *settings: str, heads: int = HEADS) -> Position:
    """A position part by its YAML name, in float64 with wide weights; heads are 8 wide."""
    sizes = [f"model.d_model={8 * heads}", f"model.num_heads={heads}"]
    overrides = [f"model/position={option}", *sizes, *(f"model.position.{setting}" for setting in settings)]
    made = build_plan(small(overrides), 11).layers[0].position().double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return made


def context(length: int = LENGTH) -> Context:
    tokens = Tokens.of(length)
    return Context(tokens, tokens, dtype=torch.float64)


def queries_and_keys(length: int = LENGTH, heads: int = HEADS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    q, k = torch.randn(2, 2, heads, length, WIDTH, generator=generator, dtype=torch.float64)
    return q.requires_grad_(), k.requires_grad_()


def gap(mine: Tensor, theirs: Tensor, inputs: Sequence[Tensor]) -> float:
    """The largest difference of two results, and of the gradients by `inputs` of a random mixture of each."""
    assert mine.shape == theirs.shape
    probe = torch.randn(mine.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    grads = [torch.autograd.grad((result * probe).sum(), list(inputs)) for result in (mine, theirs)] if inputs else []
    pairs = [(mine, theirs), *(zip(*grads, strict=True) if grads else [])]
    return max(((a - b).abs() / (1 + b.abs())).max().item() for a, b in pairs)


def agree(report: Report, bound: float, mine: Tensor, theirs: Tensor, inputs: Sequence[Tensor]) -> None:
    worst = gap(mine, theirs, inputs)
    report("largest_difference", worst)
    assert worst <= bound


class TestTransformers:
    @pytest.fixture(autouse=True)
    def transformers(self) -> None:
        pytest.importorskip("transformers")

    @pytest.mark.parametrize("bidirectional", [False, True])
    def test_t5(self, bidirectional: bool, record_property: Report) -> None:
        """T5Attention.compute_bias; 300 places reach the last bucket."""
        from transformers import T5Config
        from transformers.models.t5.modeling_t5 import T5Attention

        config = T5Config(d_model=32, d_kv=8, num_heads=HEADS, is_decoder=not bidirectional)
        theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
        ours = part("t5", f"bidirectional={bidirectional}")
        table, weight = theirs.relative_attention_bias.weight, ours.table.weight
        with torch.no_grad():
            table.copy_(weight)
        bias, expected = ours.bias(context(300)), theirs.compute_bias(300, 300)
        probe = torch.randn(expected.shape, dtype=torch.float64)
        (mine,), (gradient,) = (
            torch.autograd.grad((b * probe).sum(), w) for b, w in ((bias, weight), (expected, table))
        )
        worst = max((bias - expected).abs().max().item(), (mine - gradient).abs().max().item())
        record_property("largest_difference", worst)
        assert worst <= EXACT

    @pytest.mark.parametrize("bidirectional", [False, True])
    def test_t5_attention(self, bidirectional: bool, record_property: Report) -> None:
        """T5Attention.forward, which does not scale by 1/√E; its softmax is computed in float32."""
        from transformers import T5Config
        from transformers.models.t5.modeling_t5 import T5Attention

        config = T5Config(d_model=32, d_kv=8, num_heads=HEADS, is_decoder=not bidirectional, dropout_rate=0.0)
        theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
        pattern = "full" if bidirectional else "causal"
        overrides = [f"model/pattern={pattern}", "model.score.exponent=0.0", "model.bias=false"]
        ours = build_plan(small([*overrides, "model/position=t5"]), 11).layers[0].attention().double()
        position = part("t5", f"bidirectional={bidirectional}")
        names = {"q": ours.query, "k": ours.key, "v": ours.value, "o": ours.out}
        pairs = [(module.weight, getattr(theirs, name).weight) for name, module in names.items()]
        pairs.append((position.table.weight, theirs.relative_attention_bias.weight))
        generator = torch.Generator().manual_seed(6)
        with torch.no_grad():
            for mine, their in pairs:
                mine.copy_(0.5 * torch.randn(mine.shape, generator=generator, dtype=torch.float64))
                their.copy_(mine)
        x = torch.randn(2, LENGTH, 32, generator=generator, dtype=torch.float64, requires_grad=True)
        later = torch.ones(LENGTH, LENGTH).triu(1).bool()
        mask = torch.zeros(1, 1, LENGTH, LENGTH, dtype=torch.float64)
        mask = mask if bidirectional else mask.masked_fill(later, torch.finfo(torch.float32).min)
        outputs = (ours(x, context(), position), theirs(x, mask=mask)[0])
        probe = torch.randn(outputs[0].shape, generator=generator, dtype=torch.float64)
        grads = [
            torch.autograd.grad((out * probe).sum(), [x, *weights])
            for out, weights in zip(outputs, zip(*pairs, strict=True), strict=True)
        ]
        compared = [outputs, *zip(*grads, strict=True)]
        worst = max(((a - b).abs() / (1 + b.abs())).max().item() for a, b in compared)
        record_property("largest_difference", worst)
        assert worst <= FLOAT32

    @pytest.mark.parametrize("heads", [1, 2, 4, 6, 8, 12])
    @pytest.mark.parametrize("model", ["bloom", "mpt"])
    def test_alibi(self, model: str, heads: int, record_property: Report) -> None:
        """Both add m·j where we add −m·(i − j), which a softmax cannot tell apart. Their slopes are float32."""
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor
        from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

        if model == "bloom":
            bias = build_alibi_tensor(torch.ones(1, LENGTH), heads, torch.float64)
        else:
            bias = build_mpt_alibi_tensor(heads, LENGTH).double()
        ours = part("alibi", heads=heads).bias(context())
        logits = torch.randn(2, heads, LENGTH, LENGTH, dtype=torch.float64, requires_grad=True)
        later = torch.ones(LENGTH, LENGTH).triu(1).bool()
        mine, theirs = ((logits + b).masked_fill(later, -math.inf).softmax(-1) for b in (ours, bias))
        agree(record_property, FLOAT32, mine, theirs, [logits])

    @pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
    def test_gpt_neox_pairs_halves(self, fraction: float, record_property: Report) -> None:
        """GPTNeoXRotaryEmbedding.forward computes angles in float32."""
        from transformers import GPTNeoXConfig
        from transformers.models.gpt_neox import modeling_gpt_neox as neox

        config = GPTNeoXConfig(hidden_size=32, num_attention_heads=HEADS, rotary_pct=fraction)
        config.rope_parameters["partial_rotary_factor"] = fraction
        q, k = queries_and_keys()
        cos, sin = neox.GPTNeoXRotaryEmbedding(config)(q, torch.arange(LENGTH)[None])
        mine = part("rope", f"fraction={fraction}").rotate(q, k, context())
        theirs = neox.apply_rotary_pos_emb(q, k, cos, sin)
        agree(record_property, FLOAT32, torch.cat(mine), torch.cat(theirs), [q, k])

    @pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
    def test_gpt_j_pairs_neighbours(self, fraction: float, record_property: Report) -> None:
        """create_sinusoidal_positions computes angles in float32; heads come after places."""
        from transformers.models.gptj import modeling_gptj as gptj

        q, k = queries_and_keys()
        turning = int(WIDTH * fraction)
        sin, cos = gptj.create_sinusoidal_positions(LENGTH, turning)[None].double().chunk(2, dim=-1)

        def turned(x: Tensor) -> Tensor:
            first = gptj.apply_rotary_pos_emb(x.transpose(1, 2)[..., :turning], sin, cos).transpose(1, 2)
            return torch.cat([first, x[..., turning:]], dim=-1)

        mine = part("rope_interleaved", f"fraction={fraction}").rotate(q, k, context())
        agree(record_property, FLOAT32, torch.cat(mine), torch.cat([turned(q), turned(k)]), [q, k])

    @pytest.mark.parametrize(
        ("option", "settings", "theirs"),
        [
            ("rope", (), {"rope_type": "default"}),
            ("rope_linear", ("factor=3.0",), {"rope_type": "linear", "factor": 3.0}),
            ("rope_ntk_dynamic", ("factor=1.0", "original_len=16"), {"rope_type": "dynamic", "factor": 1.0}),
            ("rope_ntk_dynamic", ("factor=2.5", "original_len=16"), {"rope_type": "dynamic", "factor": 2.5}),
            ("rope_yarn", ("original_len=16", "beta_fast=4.0"), {"rope_type": "yarn", "truncate": False}),
            (
                "rope_llama3",
                ("base=10000.0", "factor=3.0", "original_len=16", "turns_low=0.1", "turns_high=1.0"),
                {
                    "rope_type": "llama3",
                    "factor": 3.0,
                    "original_max_position_embeddings": 16,
                    "low_freq_factor": 0.1,
                    "high_freq_factor": 1.0,
                },
            ),
            (
                "rope_yarn",
                ("original_len=16", "beta_fast=4.0", "rounded=true"),
                {"rope_type": "yarn", "truncate": True},
            ),
        ],
    )
    @pytest.mark.parametrize("length", [9, 50])
    def test_llama_scales(
        self, option: str, settings: tuple[str, ...], theirs: dict[str, Any], length: int, record_property: Report
    ) -> None:
        """LlamaRotaryEmbedding computes frequencies and angles in float32. 9 places lie within training, 50 beyond."""
        from transformers import LlamaConfig
        from transformers.models.llama import modeling_llama as llama

        if theirs["rope_type"] == "yarn":
            theirs = {**theirs, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0}
        config = LlamaConfig(
            hidden_size=8 * HEADS,
            num_attention_heads=HEADS,
            max_position_embeddings=16,
            rope_parameters={"rope_theta": 10000.0, **theirs},
        )
        q, k = queries_and_keys(length)
        cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(length)[None])
        mine = part(option, *settings).rotate(q, k, context(length))
        expected = llama.apply_rotary_pos_emb(q, k, cos, sin)
        agree(record_property, FLOAT32, torch.cat(mine), torch.cat(expected), [q, k])


def test_an_interpolated_table_is_torchs_linear_interpolation(record_property: Report) -> None:
    """torch.nn.functional.interpolate with aligned corners, on the table as a signal."""
    ours, x = part("learned_interpolated", "rows=6"), torch.zeros(1, 17, 32, dtype=torch.float64)
    table = ours.table.weight
    expected = functional.interpolate(table.mT[None], size=17, mode="linear", align_corners=True).mT
    agree(record_property, EXACT, ours.embed(x, Tokens.of(17)), expected, [table])


def loop(term: Callable[..., Tensor], q: Tensor, k: Tensor) -> Tensor:
    """[B, H, T, T] of term(q [T, E], k [T, E], h, i, j), one cell at a time."""
    rows, heads, length, _ = q.shape
    cells = [
        term(q[b, h], k[b, h], h, i, j)
        for b in range(rows)
        for h in range(heads)
        for i in range(length)
        for j in range(length)
    ]
    return torch.stack(cells).reshape(rows, heads, length, length)


def clipped(distance: int, reach: int) -> int:
    return max(-reach, min(reach, distance))


class TestDefinitions:
    """Each formula as a loop in float64; tables are short, so that distances reach beyond them."""

    def check_bias(self, report: Report, ours: Position, term: Callable[..., Tensor]) -> None:
        q, k = queries_and_keys()
        agree(report, EXACT, ours.bias(context()).expand(2, -1, -1, -1), loop(term, q, k), list(ours.parameters()))

    def check_scores(self, report: Report, ours: Position, term: Callable[..., Tensor], *, by_key: bool) -> None:
        q, k = queries_and_keys()
        inputs = [q, *([k] if by_key else []), *ours.parameters()]
        agree(report, EXACT, ours.scores(q, k, context()), loop(term, q, k), inputs)

    @pytest.mark.parametrize("symmetric", [False, True])
    def test_relative_bias(self, symmetric: bool, record_property: Report) -> None:
        ours = part("relative_bias", "max_distance=4", f"symmetric={symmetric}")
        table = ours.table.weight

        def term(q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
            return table[min(abs(i - j), 4) if symmetric else clipped(i - j, 4) + 4, h]

        self.check_bias(record_property, ours, term)

    def test_relative_key(self, record_property: Report) -> None:
        """Shaw et al. 2018, equation 4, with a^K of the query's place minus the key's."""
        ours = part("relative_key", "max_distance=4")
        table = ours.table.weight
        self.check_scores(
            record_property, ours, lambda q, k, h, i, j: q[i] @ table[clipped(i - j, 4) + 4], by_key=False
        )

    def test_relative_key_query(self, record_property: Report) -> None:
        """Huang et al. 2020, method 4."""
        ours = part("relative_key_query", "max_distance=4")
        table = ours.table.weight
        self.check_scores(
            record_property, ours, lambda q, k, h, i, j: (q[i] + k[j]) @ table[clipped(i - j, 4) + 4], by_key=True
        )

    def test_transformer_xl(self, record_property: Report) -> None:
        """Dai et al. 2019, section 3.3: terms (b), (c) and (d) of A^rel; (a) is q·k."""
        ours = part("transformer_xl")
        u, v, w = ours.content_bias.weight, ours.distance_bias.weight, ours.map.weight.unflatten(0, (HEADS, WIDTH))

        def term(q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
            angles = [(i - j) / 10000.0 ** (2 * n / 32) for n in range(16)]
            sinusoid = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)
            r = w[h] @ sinusoid
            return q[i] @ r + u[h] @ k[j] + v[h] @ r

        self.check_scores(record_property, ours, term, by_key=True)

    @pytest.mark.parametrize("exponent", [0.0, -0.5])
    def test_cope(self, exponent: float, record_property: Report) -> None:
        """Golovneva et al. 2024, equations 3 to 6; 4 rows are fewer than the gates of 9 places can count."""
        ours = part("cope", "rows=4", f"gate_exponent={exponent}")
        table = ours.table.weight

        def term(q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
            place = torch.zeros((), dtype=torch.float64)
            for t in range(j, i + 1):
                place = place + torch.sigmoid(WIDTH**exponent * (q[i] @ k[t]))
            place = place.clamp(max=3)
            low, high = math.floor(place.item()), math.ceil(place.item())
            return q[i] @ table[high] * (place - low) + q[i] @ table[low] * (1 - place + low)

        self.check_scores(record_property, ours, term, by_key=True)

    def test_kerple(self, record_property: Report) -> None:
        """Chi et al. 2022, the logarithmic kernel."""
        ours = part("kerple")
        r1, r2 = ours.log_scale.exp().flatten(), ours.log_rate.exp().flatten()
        self.check_bias(record_property, ours, lambda q, k, h, i, j: -r1[h] * torch.log(1 + r2[h] * abs(i - j)))

    def test_kerple_power(self, record_property: Report) -> None:
        """Chi et al. 2022, the power kernel."""
        ours = part("kerple_power")
        r1, r2 = ours.log_scale.exp().flatten(), 2 / (1 + (-ours.logit_power).exp()).flatten()
        self.check_bias(
            record_property,
            ours,
            lambda q, k, h, i, j: -r1[h] * torch.exp(r2[h] * math.log(abs(i - j))) if i != j else 0 * r1[h] * r2[h],
        )

    def test_fire(self, record_property: Report) -> None:
        """Li et al. 2024, equation 5; the threshold lies among the 9 places."""
        ours = part("fire", "width=5")
        with torch.no_grad():
            ours.log_threshold.fill_(math.log(4.5))
        c, threshold = ours.log_rate.exp(), ours.log_threshold.exp()

        def term(q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
            last = max(i, j)
            reach = last if last > 4.5 else threshold
            share = torch.log(1 + c * abs(i - j)) / torch.log(1 + c * reach)
            hidden = [torch.relu(ours.up.weight[n, 0] * share + ours.up.bias[n]) for n in range(5)]
            return (sum(ours.down.weight[h, n] * hidden[n] for n in range(5)) + ours.down.bias[h])[0]

        self.check_bias(record_property, ours, term)

    @pytest.mark.parametrize("interleaved", [False, True])
    def test_xpos(self, interleaved: bool, record_property: Report) -> None:
        """Sun et al. 2022, algorithm 1: the product of a turned query and a turned key, pair by pair."""
        ours = part("xpos", "span=20.0", f"interleaved={interleaved}")
        q, k = queries_and_keys()
        turned_q, turned_k = ours.rotate(q, k, context())

        def term(q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
            total = torch.zeros((), dtype=torch.float64)
            for n in range(4):
                a, b = (2 * n, 2 * n + 1) if interleaved else (n, n + 4)
                zeta, angle = (2 * n / 8 + 0.4) / 1.4, (i - j) * 10000.0 ** (-2 * n / 8)
                along, across = q[i, a] * k[j, a] + q[i, b] * k[j, b], q[i, a] * k[j, b] - q[i, b] * k[j, a]
                total = total + zeta ** ((i - j) / 20) * (along * math.cos(angle) + across * math.sin(angle))
            return total

        agree(record_property, EXACT, turned_q @ turned_k.mT, loop(term, q, k), [q, k])

    @pytest.mark.parametrize("option", ["rope", "rope_linear", "rope_ntk", "rope_ntk_dynamic", "rope_yarn"])
    def test_scaled_rotary(self, option: str, record_property: Report) -> None:
        """The angles by hand in float64: Chen 2023; bloc97 2023; Peng et al. 2023, with the authors' ramp."""
        settings = {
            "rope_linear": ["factor=3.0"],
            "rope_ntk": ["factor=3.0"],
            "rope_ntk_dynamic": ["factor=3.0", "original_len=6"],
            "rope_yarn": ["factor=3.0", "original_len=64", "beta_fast=4.0", "beta_slow=0.5"],
        }
        ours = part(option, *settings.get(option, []))
        q, k = queries_and_keys()
        base, amplitude = 10000.0, 1.0
        if option == "rope_ntk":
            base *= 3 ** (8 / 6)
        if option == "rope_ntk_dynamic":
            base *= (3 * 9 / 6 - 2) ** (8 / 6)
        omega = [base ** (-2 * n / 8) for n in range(4)]
        if option == "rope_linear":
            omega = [w / 3 for w in omega]
        if option == "rope_yarn":
            amplitude = (1 + 0.1 * math.log(3)) ** 2
            first, last = (8 * math.log(64 / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (4.0, 0.5))
            ramp = [min(max((n - first) / (last - first), 0), 1) for n in range(4)]
            omega = [g * w / 3 + (1 - g) * w for g, w in zip(ramp, omega, strict=True)]

        def term(q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
            total = torch.zeros((), dtype=torch.float64)
            for n in range(4):
                along = q[i, n] * k[j, n] + q[i, n + 4] * k[j, n + 4]
                across = q[i, n] * k[j, n + 4] - q[i, n + 4] * k[j, n]
                total = total + along * math.cos((i - j) * omega[n]) + across * math.sin((i - j) * omega[n])
            return amplitude * total

        turned_q, turned_k = ours.rotate(q, k, context())
        agree(record_property, EXACT, turned_q @ turned_k.mT, loop(term, q, k), [q, k])

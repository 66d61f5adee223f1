"""Position encodings: absolute, rotary, and by terms that are added to the attention logits."""

from swapformer.model.position.absolute import Learned, LearnedInterpolated, Sinusoidal
from swapformer.model.position.base import Position, shared_bias
from swapformer.model.position.bias import T5, ALiBi
from swapformer.model.position.combined import Randomized, Sum
from swapformer.model.position.contextual import CoPE, TransformerXL
from swapformer.model.position.decay import FIRE, KerpleLog, KerplePower
from swapformer.model.position.relative import RelativeBias, RelativeKey, RelativeKeyQuery
from swapformer.model.position.rotary import Rotary, XPos
from swapformer.model.position.stretched import DynamicNTKRotary, LinearRotary, Llama3Rotary, NTKRotary, YaRN

__all__ = [
    "FIRE",
    "T5",
    "ALiBi",
    "CoPE",
    "DynamicNTKRotary",
    "KerpleLog",
    "KerplePower",
    "Learned",
    "LearnedInterpolated",
    "LinearRotary",
    "Llama3Rotary",
    "NTKRotary",
    "Position",
    "Randomized",
    "RelativeBias",
    "RelativeKey",
    "RelativeKeyQuery",
    "Rotary",
    "Sinusoidal",
    "Sum",
    "TransformerXL",
    "XPos",
    "YaRN",
    "shared_bias",
]

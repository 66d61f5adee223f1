"""Attention variants."""

from swapformer.model.attention.base import Attention
from swapformer.model.attention.gated_delta import GatedDeltaNet
from swapformer.model.attention.latent import MLA
from swapformer.model.attention.linear import LinearAttention
from swapformer.model.attention.linformer import Linformer
from swapformer.model.attention.mamba import Mamba2
from swapformer.model.attention.multihead import MultiHead
from swapformer.model.attention.nystrom import Nystrom
from swapformer.model.attention.performer import Performer
from swapformer.model.attention.reformer import Reformer

__all__ = [
    "MLA",
    "Attention",
    "GatedDeltaNet",
    "LinearAttention",
    "Linformer",
    "Mamba2",
    "MultiHead",
    "Nystrom",
    "Performer",
    "Reformer",
]

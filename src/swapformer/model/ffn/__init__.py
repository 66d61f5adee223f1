"""Feed-forward layers: what is computed at each place alone."""

from swapformer.model.ffn.base import FFN, Nothing
from swapformer.model.ffn.dense import GLU, MLP
from swapformer.model.ffn.experts import MoE
from swapformer.model.ffn.sparse import BlockSparse, LowRank, TopK

__all__ = ["FFN", "GLU", "MLP", "BlockSparse", "LowRank", "MoE", "Nothing", "TopK"]

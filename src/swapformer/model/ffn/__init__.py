"""Feed-forward layers: functions of each token only."""

from swapformer.model.ffn.base import FFN, Nothing
from swapformer.model.ffn.dense import GLU, MLP
from swapformer.model.ffn.experts import MoE
from swapformer.model.ffn.sparse import BlockSparse, LowRank, TopK

__all__ = ["FFN", "GLU", "MLP", "BlockSparse", "LowRank", "MoE", "Nothing", "TopK"]

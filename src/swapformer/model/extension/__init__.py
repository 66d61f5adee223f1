"""Extensions inside an attention: gates, convolutions, masks of heads, losses on heads."""

from swapformer.model.extension.base import Extension
from swapformer.model.extension.head_losses import Guidance, Orthogonality
from swapformer.model.extension.heads import Convolution, HeadMask, OutputGate, ValueResidual

__all__ = ["Convolution", "Extension", "Guidance", "HeadMask", "Orthogonality", "OutputGate", "ValueResidual"]

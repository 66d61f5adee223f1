"""Position encodings: how a place tells the model where it stands."""

from swapformer.model.position.absolute import Learned, Sinusoidal
from swapformer.model.position.base import Position
from swapformer.model.position.bias import T5, ALiBi
from swapformer.model.position.rotary import Rotary

__all__ = ["T5", "ALiBi", "Learned", "Position", "Rotary", "Sinusoidal"]

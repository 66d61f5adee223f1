"""Models of Hugging Face `transformers` and of torch, and the same ones of ours: how weights are mapped."""

from whole_models.case import LAYERS as LAYERS
from whole_models.case import LENGTH as LENGTH
from whole_models.case import VOCABULARY as VOCABULARY
from whole_models.case import Case as Case
from whole_models.case import Given as Given
from whole_models.case import read_gradients as read_gradients
from whole_models.decoders import DECODERS
from whole_models.encoders import ENCODERS

CASES = [*DECODERS, *ENCODERS]

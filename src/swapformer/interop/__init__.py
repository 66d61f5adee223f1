"""Import and export of checkpoints of Hugging Face `transformers`: GPT-2, BERT and Llama."""

from swapformer.interop.checkpoint import FORMATS as FORMATS
from swapformer.interop.checkpoint import Checkpoint as Checkpoint
from swapformer.interop.checkpoint import load as load
from swapformer.interop.checkpoint import save as save

"""Checkpoints that come from other libraries and go to them: Hugging Face `transformers`' GPT-2 and Llama."""

from swapformer.interop.checkpoint import FORMATS as FORMATS
from swapformer.interop.checkpoint import Checkpoint as Checkpoint
from swapformer.interop.checkpoint import load as load
from swapformer.interop.checkpoint import save as save

"""Topologies: embeddings, stacks and the layers that read answers, for decoders, encoders and both together."""

from swapformer.model.topology.base import Topology, take_auxiliary_loss
from swapformer.model.topology.decoder import Decoder, EncoderDecoder
from swapformer.model.topology.encoder import Encoder

__all__ = ["Decoder", "Encoder", "EncoderDecoder", "Topology", "take_auxiliary_loss"]

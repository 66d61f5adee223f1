"""Topologies: what stands around the layers."""

from swapformer.model.topology.base import Topology
from swapformer.model.topology.decoder import Decoder
from swapformer.model.topology.encoder import Encoder
from swapformer.model.topology.encoder_decoder import EncoderDecoder

__all__ = ["Decoder", "Encoder", "EncoderDecoder", "Topology"]

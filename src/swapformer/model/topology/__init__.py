"""Topologies: embeddings, stacks and the layers that read answers, for decoders and encoders; or a whole model."""

from swapformer.model.topology.base import Topology, take_auxiliary_loss
from swapformer.model.topology.decoder import Decoder, EncoderDecoder
from swapformer.model.topology.encoder import Encoder
from swapformer.model.topology.own import Own

__all__ = ["Decoder", "Encoder", "EncoderDecoder", "Own", "Topology", "take_auxiliary_loss"]

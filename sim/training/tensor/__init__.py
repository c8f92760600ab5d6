"""Decoders on tensor-parallel ranks: `rank_layers` makes one rank's part of a model."""

from ringside.sim.training.tensor.activations import Activations
from ringside.sim.training.tensor.alone import pass_s, without_exchanges
from ringside.sim.training.tensor.cut import STYLES, Cut, Pull, TensorParallel
from ringside.sim.training.tensor.experts import ExpertParallel
from ringside.sim.training.tensor.layers import Numerics, rank_layers, replicated_parameters, tied_embedding

__all__ = [
    "STYLES",
    "Activations",
    "Cut",
    "ExpertParallel",
    "Numerics",
    "Pull",
    "TensorParallel",
    "pass_s",
    "rank_layers",
    "replicated_parameters",
    "tied_embedding",
    "without_exchanges",
]

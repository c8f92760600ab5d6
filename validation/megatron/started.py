"""The training that a file of Megatron-LM's arguments starts, as fields of `train`'s question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.decoder_file import decoder_of
from ringside.validation.megatron.arguments import Arguments
from ringside.validation.megatron.training import translated


@dataclass(frozen=True, slots=True)
class Started:
    """The decoder, the ``options`` of its training, and ``remarks`` on arguments that no word says."""

    decoder: Decoder
    options: Mapping[str, Any]
    unmodelled: Sequence[str]
    remarks: Sequence[str]


def started(given: Arguments, ranks: int) -> Started:
    """Return what the arguments start on this number of ranks."""
    translation = translated(given, ranks)
    remarks = []
    if translation.unmodelled:
        remarks.append(f"not modelled: {', '.join(dict.fromkeys(translation.unmodelled))}")
    if translation.unknown:
        remarks.append(f"not understood: {', '.join(translation.unknown)}")
    decoder = decoder_of(dict(translation.shape), Path(given.name))
    return Started(decoder, translation.options, translation.unmodelled, remarks)

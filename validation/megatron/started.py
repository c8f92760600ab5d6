"""The training that a file of Megatron-LM's arguments starts, as fields of `train`'s question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.decoder_file import decoder_of
from ringside.sim.workload.decoder_parts import Experts
from ringside.validation.megatron.arguments import Arguments
from ringside.validation.megatron.training import translated

_LATER = {
    "etp": "--expert-tensor-parallel-size", "dispatcher": "--moe-token-dispatcher-type",
    "pp_layout": "--pipeline-model-parallel-layout", "recompute": "--recompute-modules",
    "microbatch_group": "--microbatch-group-size-per-virtual-pipeline-stage",
    "loss": "--cross-entropy-loss-fusion", "head": "--kv-channels", "qk_norm": "--qk-layernorm",
    "predicted": "--mtp-num-layers", "every": "--moe-layer-freq",
    "shared_hidden": "--moe-shared-expert-intermediate-size",
}  # fmt: skip
"""Words that are not there yet, by the arguments that they would say."""


@dataclass(frozen=True, slots=True)
class Started:
    """The decoder, the ``options`` of its training, and ``remarks`` on arguments that no word says."""

    decoder: Decoder
    options: Mapping[str, Any]
    unmodelled: Sequence[str]
    remarks: Sequence[str]


def started(given: Arguments, ranks: int, known: Sequence[str]) -> Started:
    """Return what the arguments start on this number of ranks, in the ``known`` options."""
    translation = translated(given, ranks)
    unmodelled = list(translation.unmodelled)
    shape, options = dict(translation.shape), dict(translation.options)
    neutral = {
        "etp": options["tp"], "pp_layout": None, "recompute": "core_attn", "loss": "written",
        "microbatch_group": options["pp"], "head": 0, "qk_norm": False,
        "predicted": 0, "every": 1, "shared_hidden": 0,
    }  # fmt: skip

    def kept(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        for name in values.keys() - {*names}:
            if name not in neutral or values[name] != neutral[name]:
                unmodelled.append(_LATER[name])
        return {name: value for name, value in values.items() if name in names}

    if experts := shape.get("experts"):
        shape["experts"] = kept(experts, [one.name for one in fields(Experts)])
    decoder = decoder_of(kept(shape, [one.name for one in fields(Decoder)]), Path(given.name))
    options = kept(options, known)
    remarks = [f"not modelled: {', '.join(dict.fromkeys(unmodelled))}"] if unmodelled else []
    remarks += [f"not understood: {', '.join(translation.unknown)}"] if translation.unknown else []
    return Started(decoder, options, unmodelled, remarks)

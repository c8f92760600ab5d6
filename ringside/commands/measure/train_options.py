"""The options of ``ringside measure train``, which say how the training is laid out."""

from typing import Annotated

import typer

from ringside.options import choices
from ringside.real.training.job import DTYPES
from ringside.sim.training.context import METHODS
from ringside.sim.training.pipeline.schedules import SCHEDULES

Strategy = Annotated[
    str | None,
    typer.Option(
        metavar="fsdp|hsdp|zero_redundancy|ddp",
        show_default="fsdp; ddp with experts, and only there",
        help="What data-parallel ranks do.",
    ),
]
Shard = Annotated[
    int | None,
    typer.Option(
        show_default="half of them", help="hsdp: ranks that hold one copy of the parameters together."
    ),
]
Tensor = Annotated[int, typer.Option("--tp", help="Ranks that share each layer.")]
Context = Annotated[int, typer.Option("--cp", help="Ranks that share each sequence.")]
ContextMethod = Annotated[
    str | None,
    typer.Option(
        "--cp-method", metavar=choices(METHODS), show_default="zigzag", help="How they pass keys and values."
    ),
]
Pipeline = Annotated[int, typer.Option("--pp", help="Ranks that share the layers.")]
Experts = Annotated[
    int | None, typer.Option("--ep", show_default="all, of experts", help="Ranks that deal experts out.")
]
Schedule = Annotated[
    str | None,
    typer.Option(metavar="NAME", show_default="1f1b", help=f"The pipeline's: {', '.join(SCHEDULES)}."),
]
Virtual = Annotated[
    int | None, typer.Option(show_default="1; 2 where a schedule needs them", help="Stages a rank.")
]
MicroBatches = Annotated[
    int | None,
    typer.Option(show_default="1, in a pipeline twice its ranks", help="Micro-batches of a step."),
]
KeepGathered = Annotated[bool, typer.Option("--keep-gathered", help="FSDP's reshard_after_forward=False.")]
NoSync = Annotated[
    bool, typer.Option("--no-sync", help="Reduce gradients in the last backward alone, not in each.")
]
SequenceParallel = Annotated[
    bool, typer.Option("--sequence-parallel", help="Cut tokens among tensor-parallel ranks.")
]
ParamDtype = Annotated[str, typer.Option(metavar=choices(DTYPES), help="In which FSDP gathers parameters.")]
ReduceDtype = Annotated[str, typer.Option(metavar=choices(DTYPES), help="In which FSDP sums gradients.")]

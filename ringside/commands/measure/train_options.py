"""The layout options of ``ringside measure train``."""

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
        show_default="fsdp; ddp with experts only",
        help="Data-parallel strategy.",
    ),
]
Shard = Annotated[
    int | None,
    typer.Option(show_default="half of them", help="hsdp: ranks that shard one copy of the parameters."),
]
Tensor = Annotated[int, typer.Option("--tp", help="Ranks that share each layer.")]
Context = Annotated[int, typer.Option("--cp", help="Ranks that share each sequence.")]
ContextMethod = Annotated[
    str | None,
    typer.Option(
        "--cp-method", metavar=choices(METHODS), show_default="zigzag", help="Method of context parallelism."
    ),
]
Pipeline = Annotated[int, typer.Option("--pp", help="Ranks that share the layers.")]
Experts = Annotated[
    int | None, typer.Option("--ep", show_default="all, of experts", help="Ranks that share the experts.")
]
Schedule = Annotated[
    str | None,
    typer.Option(metavar="NAME", show_default="1f1b", help=f"Pipeline schedule: {', '.join(SCHEDULES)}."),
]
Virtual = Annotated[
    int | None, typer.Option(show_default="1; 2 where a schedule needs them", help="Stages per rank.")
]
MicroBatches = Annotated[
    int | None,
    typer.Option(show_default="1; in a pipeline twice its ranks", help="Micro-batches per step."),
]
KeepGathered = Annotated[bool, typer.Option("--keep-gathered", help="FSDP's reshard_after_forward=False.")]
NoSync = Annotated[bool, typer.Option("--no-sync", help="Reduce gradients only in the last backward pass.")]
SequenceParallel = Annotated[
    bool, typer.Option("--sequence-parallel", help="Split tokens among tensor-parallel ranks.")
]
ParamDtype = Annotated[str, typer.Option(metavar=choices(DTYPES), help="Type of FSDP's gathers.")]
ReduceDtype = Annotated[str, typer.Option(metavar=choices(DTYPES), help="Type of FSDP's reductions.")]

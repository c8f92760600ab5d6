"""The options of ``ringside train``, each described once."""

from typing import Annotated

import typer

from ringside.options import choices
from ringside.sim.training.context import METHODS
from ringside.sim.training.layout import STRATEGIES
from ringside.sim.training.memory import OPTIMIZERS
from ringside.sim.training.pipeline.schedules import SCHEDULES
from ringside.sim.training.tensor import STYLES
from ringside.sim.workload.decoder import CHECKPOINTING
from ringside.sim.workload.devices import DEVICES
from ringside.validation.questions.training import ATTENTION

Model = Annotated[
    str,
    typer.Option(
        metavar="NAME[:SIZE]|FILE",
        help="resnet50, gpt2-xl:512,layers=9, your FILE.py:NAME, or a workload's YAML.",
    ),
]
Strategy = Annotated[
    str,
    typer.Option(
        metavar="NAME", help=f"What data-parallel ranks do: {', '.join(STRATEGIES)} (docs/parallel.md)."
    ),
]
Tensor = Annotated[int, typer.Option("--tp", help="Tensor-parallel ranks, which share each layer.")]
TensorStyle = Annotated[
    str | None,
    typer.Option(
        "--tp-style",
        metavar=choices(STYLES),
        show_default="dtensor with --async-tp",
        help="Products of one input as one, or each alone.",
    ),
]
AsyncTensor = Annotated[
    bool,
    typer.Option("--async-tp", help="Hide tensor-parallel exchanges behind products, as torch can."),
]
Context = Annotated[int, typer.Option("--cp", help="Context-parallel ranks, which share each sequence.")]
ContextMethod = Annotated[
    str | None,
    typer.Option(
        "--cp-method",
        metavar=choices(METHODS),
        show_default="the framework's own",
        help="How they pass keys and values.",
    ),
]
Pipeline = Annotated[int, typer.Option("--pp", help="Pipeline-parallel ranks, which share the layers.")]
Shard = Annotated[
    int | None,
    typer.Option(show_default="a machine's; all", help="hsdp, hybrid_zero: ranks that deal out together."),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE.csv",
        show_default="1f1b",
        help=f"Of the pipeline: {', '.join(SCHEDULES)}, or torch's CSV.",
    ),
]
Virtual = Annotated[
    int | None, typer.Option(show_default="2 where interleaved, else 1", help="Stages of a pipeline rank.")
]
MicroBatch = Annotated[
    int | None,
    typer.Option(
        show_default="1 under a layout, all in data_parallel", help="Samples that pass at once, of a --batch."
    ),
]
Checkpointing = Annotated[
    str, typer.Option(metavar=choices(CHECKPOINTING), help="Which activations are made anew.")
]
SequenceParallel = Annotated[
    bool, typer.Option("--sequence-parallel", help="Cut tokens among tensor-parallel ranks between products.")
]
Experts = Annotated[
    int, typer.Option("--ep", help="Expert-parallel ranks, neighbours among the data-parallel ones.")
]
Imbalance = Annotated[
    float, typer.Option("--ep-imbalance", help="Tokens of the busiest expert-parallel rank, over the mean.")
]
Capacity = Annotated[
    float | None,
    typer.Option(
        "--capacity-factor",
        show_default="no limit",
        help="Tokens of each expert over the mean, padded and dropped.",
    ),
]
Sequence = Annotated[
    int | None,
    typer.Option(
        "--seq", show_default="the model's own", help="Tokens of a sample, as NAME:SIZE says it too."
    ),
]
Clip = Annotated[
    bool | None,
    typer.Option(
        "--clip/--no-clip",
        show_default="as Megatron-LM does, as others do not",
        help="Clip gradients by their norm, which all ranks sum.",
    ),
]
OverlapGradReduce = Annotated[
    bool,
    typer.Option(
        "--overlap-grad-reduce", help="distributed_optimizer: scatter gradients bucket by bucket in backward."
    ),
]
OverlapParamGather = Annotated[
    bool,
    typer.Option(
        "--overlap-param-gather", help="distributed_optimizer: gather parameters beside the next forward."
    ),
]
AnyLibrary = Annotated[
    str, typer.Option(metavar="auto|ideal|gloo|nccl", help="Whose times; auto is nccl where it is known.")
]
Batch = Annotated[
    int | None, typer.Option(show_default="32 or the file's", help="Samples of a rank and pass.")
]
GlobalBatch = Annotated[
    int | None,
    typer.Option(show_default="the least for all counts", help="Samples of a step, for strong scaling."),
]
Gpu = Annotated[
    str | None,
    typer.Option(show_default="the cluster's", metavar="GPU", help=f"One of {', '.join(DEVICES)}."),
]
Precision = Annotated[
    str | None,
    typer.Option(show_default="as the model usually is", help="What products are computed in: bf16, ..."),
]
Dtype = Annotated[
    str | None, typer.Option(show_default="the model's own", help="Type of parameters and gradients.")
]
Attention = Annotated[
    str,
    typer.Option(
        metavar=choices(ATTENTION), help="Kernels of attention: fused, without masked scores, or unfused."
    ),
]
AttentionEfficiency = Annotated[
    float | None, typer.Option(show_default="that of products", help="Share of its peak in attention proper.")
]
ParamDtype = Annotated[
    str | None,
    typer.Option(show_default="the products'", help="FSDP: type in which parameters are gathered."),
]
ReduceDtype = Annotated[
    str | None, typer.Option(show_default="the parameters'", help="FSDP: type in which gradients are summed.")
]
Efficiency = Annotated[
    float | None, typer.Option(show_default="its usual one", help="Share of its peak that the GPU reaches.")
]
Measured = Annotated[
    str | None, typer.Option(metavar="RATE@RANKS", help="Measured throughput: 2616img/s@1, 116000tok/s@16")
]
OptimizerName = Annotated[
    str, typer.Option(metavar=choices(OPTIMIZERS), help="Whose state is kept and updated.")
]
Accumulation = Annotated[
    int, typer.Option(help="Passes a step, each reduced; with --no-sync the last alone.")
]
NoBuffers = Annotated[bool, typer.Option("--no-broadcast-buffers", help="As DistributedDataParallel's.")]
Spread = Annotated[
    float | None, typer.Option(show_default="0.015 on GPUs", help="How much ranks differ: all wait for one.")
]
Contention = Annotated[
    float | None,
    typer.Option(show_default="channels / SMs", help="Share of compute that a running collective takes."),
]
Sweep = Annotated[
    str | None, typer.Option(metavar="PARAMETER=A,B,C", help="bucket-cap-mb=1,5,25 or nodes=1,2,4")
]
MustFit = Annotated[bool, typer.Option("--must-fit", help="Exit with 1 where it is tight or does not fit.")]
NoSync = Annotated[
    bool,
    typer.Option(
        "--no-sync", help="DDP, FSDP: reduce gradients in the last backward alone, not in each (no_sync)."
    ),
]
Search = Annotated[
    bool, typer.Option("--search", help="Find the quickest layout that fits; words said are held.")
]
Top = Annotated[int, typer.Option(help="--search: as many layouts are ranked.")]
Reserve = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", show_default="the GPU's own", help="Memory of a GPU that must stay free to fit."
    ),
]

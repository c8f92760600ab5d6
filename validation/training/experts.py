"""The program of the expert layers of `ringside.real.training.experts`."""

from ringside.real.training.job import ExpertLayers, TrainingJob
from ringside.sim.collective import Collective
from ringside.sim.training.layers import Exchange, Kernels, RankLayer
from ringside.sim.training.mesh import DATA
from ringside.sim.training.stage import RankList, Stage, Unshared


def write_experts(job: TrainingJob, model: ExpertLayers, rank: RankList) -> None:
    """Write a rank's operations of a step."""
    along = rank.communicators.along
    layer = _layer(job, model, along(rank.rank, "expert").ranks.index(rank.rank))
    stage = Stage(rank, [layer] * model.layers, Unshared())
    stage.pass_all(job.micro_batches)
    router = 4 * model.layers * model.hidden * model.experts
    experts = 8 * model.layers * model.hidden * model.inner * model.experts // job.expert
    for name, nbytes, dimensions in (("routers", router, DATA), ("experts", experts, ("expert_data",))):
        group = along(rank.rank, *dimensions)
        rank.call(group, Collective("all_reduce", len(group.ranks), nbytes), f"gradients of {name}")


def _layer(job: TrainingJob, model: ExpertLayers, position: int) -> RankLayer:
    """Return a layer on the rank at this position among those that shard experts; all layers are alike."""
    ranks, each = job.expert, model.experts // job.expert
    load = model.load(position, ranks)
    counts = [model.counts(sender) for sender in range(ranks)]
    rows = [
        [sum(own[receiver * each : (receiver + 1) * each]) for receiver in range(ranks)] for own in counts
    ]
    there, back = (
        [[count * model.hidden for count in row] for row in way]
        for way in (rows, list(zip(*rows, strict=True)))
    )
    announced = Exchange(("expert",), Collective("all_gather", ranks, 8 * ranks * model.experts))
    sent, returned, probabilities, theirs = (
        Exchange(("expert",), Collective.uneven(way))
        for way in (there, back, rows, list(zip(*rows, strict=True)))
    )
    half, back_half = model.forward_s / 2, model.backward_s / 2
    return RankLayer(
        name="experts",
        forward=(Kernels(half), announced, sent, probabilities, Kernels(load * half), returned),
        backward=(sent, Kernels(load * back_half), theirs, returned, Kernels(back_half)),
    )

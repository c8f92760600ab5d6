"""The pace at which layers compute, from one throughput that was measured."""

from scipy.optimize import brentq

from sim.training.ddp.job import Costs, DataParallel
from sim.training.ddp.simulate import simulate_step
from sim.training.groups import ProcessGroup
from sim.training.pace import at_pace
from sim.workload.workload import Workload


def pace(
    workload: Workload, group: ProcessGroup, samples_per_s: float, ddp: DataParallel, costs: Costs
) -> float:
    """How many times as long layers must be for the group to train so many samples/s, in all.

    Raise ValueError where even layers that take no time would be slower.
    """
    step_s = workload.batch * ddp.accumulation * group.ranks / samples_per_s

    def missing(factor: float) -> float:
        return simulate_step(at_pace(workload, factor), group, ddp, costs).step_s - step_s

    most = 1.001 * step_s / (ddp.accumulation * (workload.forward_s + workload.backward_s))
    rest = missing(0.0)
    if rest >= 0:
        raise ValueError(
            f"{samples_per_s:g} samples/s on {group.ranks} ranks: copies, optimizer and collectives alone "
            f"allow {samples_per_s * step_s / (step_s + rest):.4g}; write what was measured with a batch of "
            f"{workload.batch} a rank"
        )
    return float(brentq(missing, 0.0, most, xtol=1e-9 * most, rtol=1e-9))

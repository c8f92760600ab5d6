"""The prediction of a measured step, from separate measurements of the same run."""

import math

from ringside.sim.program.groups import SimulatedGroup, TimedGroup, time_alone
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.ddp.record import DdpRecord
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.step import TrainingStep
from ringside.topologies.file import loads


def predict(record: DdpRecord) -> TrainingStep:
    """Return the predicted step, without reading the measured ones."""
    wires = record.wires
    group = SimulatedGroup(
        loads(wires.topology, "the measured topology"), record.ranks, library=wires.library,
        algorithm=wires.algorithm, gamma=wires.gamma, launch_s=wires.launch_s, workers=record.workers,
    )  # fmt: skip
    costs = Costs(
        memory_bandwidth=record.memory_bandwidth or math.inf,
        contention=record.contention,
        hook_s=record.hook_s,
    )
    if not record.crowding:
        return simulate_step(record.workload, group, record.ddp, costs)
    crowded = TimedGroup(record.ranks, time_alone(group), record.workers, record.crowding)
    return simulate_step(record.workload, crowded, record.ddp, costs)

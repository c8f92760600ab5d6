"""NCCL's rings and trees played by the SimPy engine, each channel over its own wires."""

from sim.collective import Collective
from sim.engine.events import Run, simulate
from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.device.schedules import channel_schedule
from sim.libraries.nccl.device.wires import channels, wires


def simulated(
    comm: Communicator, collective: Collective, algorithm: str, protocol: str, *, traced: bool = False
) -> Run:
    """The run of the channel that takes longest: as long as the whole collective's data take.

    It lasts from the first byte sent to the last received; what comes before, the tuner's base
    latency and the launch, is not in it.
    """
    runs = [
        simulate(
            channel_schedule(comm, collective, algorithm, protocol, channel.number),
            wires(comm, algorithm, channel),
            traced=traced,
        )
        for channel in channels(comm, collective, algorithm, protocol)
    ]
    return max(runs, key=lambda run: run.time_s)

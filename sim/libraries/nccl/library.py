"""What NCCL does with one collective, and how long it takes: the row of an answer.

    time = what NCCL's tuner, or the engine, says + `LAUNCH_S`

No time here is calibrated. The tuner's is NCCL's belief, by which it chooses; the engine's is the
pipeline over the tuner's latencies and the search's bandwidths, after the tuner's base latency.
"""

from dataclasses import dataclass

from sim.collective import Collective
from sim.engine.timeline import Timeline
from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.constants import BASE_US
from sim.libraries.nccl.device.p2p import KINDS as POINT_TO_POINT
from sim.libraries.nccl.device.p2p import point_to_point
from sim.libraries.nccl.device.schedules import carried_bytes
from sim.libraries.nccl.names import PROTOCOLS
from sim.libraries.nccl.simulated import simulated
from sim.libraries.nccl.tuning.tuner import cost_table

Seconds = float

LAUNCH_S: Seconds = 2e-6
"""What the host adds to a collective that runs back to back with others, in seconds.

ABCI 2.0's nccl-tests of 8 B on 8 and on 4 A100 take 17.0 and 11.9 us (github.com/aistabci/
abci2.0benchmark, NCCL 2.8.4), where the tuner says 15.0 and 10.2. Other clusters lie between 2 us
under the tuner and 20 us above: a default until a calibration knows better.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """One collective carried out: in seconds, by which pair, what NCCL believes, on how many channels."""

    time_s: Seconds
    algorithm: str
    protocol: str
    tuner_us: float
    channels: int


ALONE = Plan(LAUNCH_S, "none", "none", 0.0, 0)
"""One rank talks to nobody: NCCL copies the buffer, if it does anything."""


def model(
    collective: Collective, comm: Communicator | None, dtype: str = "float32", redop: str = "sum"
) -> Plan:
    """What NCCL chooses, within the communicator's pins; ``None`` stands for a single rank."""
    if comm is None:
        return ALONE
    if collective.kind in POINT_TO_POINT:
        sent = point_to_point(comm, collective.kind, collective.nbytes)
        return Plan(_time(sent.time_us), "p2p", "simple", sent.time_us, sent.channels)
    choice = cost_table(comm, collective.kind, dtype, redop).choose(collective.nbytes)
    return Plan(_time(choice.time_us), choice.algorithm, choice.protocol, choice.time_us, choice.channels)


def simulated_model(
    collective: Collective,
    comm: Communicator | None,
    dtype: str = "float32",
    redop: str = "sum",
    *,
    traced: bool = False,
) -> tuple[Plan, Timeline | None]:
    """What NCCL chooses, timed by the engine instead; the timeline is the slowest channel's.

    Only rings and trees can be played: pin them where NCCL would take another algorithm.
    """
    if comm is None:
        return ALONE, None
    choice = cost_table(comm, collective.kind, dtype, redop).choose(collective.nbytes)
    run = simulated(comm, collective, choice.algorithm, choice.protocol, traced=traced)
    used = len(carried_bytes(comm, collective, choice.algorithm, choice.protocol))
    seconds = run.time_s + overhead_s(choice.algorithm, choice.protocol)
    return Plan(seconds, choice.algorithm, choice.protocol, choice.time_us, used), run.timeline


def overhead_s(algorithm: str, protocol: str) -> Seconds:
    """What passes before the first byte moves: the launch, and the tuner's base latency."""
    return _time(BASE_US[algorithm][list(PROTOCOLS).index(protocol)])


def _time(microseconds: float) -> Seconds:
    return microseconds * 1e-6 + LAUNCH_S

"""The device of a rehearsal keeps the order that the tape says."""

import time
from threading import Event

import pytest

pytest.importorskip("torch")
from ringside.real.record.rehearsal.device import SleepingDevice
from ringside.sim.recorded.job import GroupCall, HostWait, Operator, PeerMessage

SLEEP = Operator("sleep")
TICK = 0.05


class Exchange:
    """Collectives take two ticks; a message ends when its other half has started."""

    def __init__(self):
        self.started = []
        self.received = Event()

    def start(self, action, lane):
        self.started.append((time.monotonic(), action, lane))
        if isinstance(action, GroupCall):
            return Ends(time.monotonic() + 2 * TICK)
        if not action.is_send:
            self.received.set()
        return self.received


class Ends:
    def __init__(self, moment):
        self.moment = moment

    def wait(self):
        time.sleep(max(self.moment - time.monotonic(), 0.0))


@pytest.fixture
def device():
    return SleepingDevice(lambda _: TICK, Exchange())


def reduce(waits):
    return GroupCall("world", "all_reduce", "all_reduce", 4, "float32", waits=waits)


def test_lanes_run_side_by_side_and_wait_for_each_other(device):
    begin = time.monotonic()
    device.begin(begin)
    for number in range(3):
        device.post(number, SLEEP, "compute", ())
    device.post(3, SLEEP, "other", ())
    device.post(4, SLEEP, "other", (2,))
    assert device.synchronize() == pytest.approx(begin + 4 * TICK)  # however late threads wake
    assert time.monotonic() >= begin + 4 * TICK


def test_the_host_waits_where_a_call_or_a_number_says(device):
    begin = time.monotonic()
    device.begin(begin)
    device.post(0, SLEEP, "compute", ())
    device.post(1, reduce(False), "world", (0,))
    device.post(2, HostWait("item"), "host", (0,))
    assert time.monotonic() >= begin + TICK
    device.post(3, reduce(True), "compute", (1,))
    assert time.monotonic() >= begin + 5 * TICK


def test_messages_of_a_batch_start_before_one_has_ended(device):
    for number, is_send in enumerate((True, False)):
        device.post(number, PeerMessage("world", 1, 4, is_send, batch=0), "world", ())
    device.post(2, reduce(True), "world", ())
    kinds = [type(action) for _, action, _ in device._exchange.started]
    assert kinds == [PeerMessage, PeerMessage, GroupCall]

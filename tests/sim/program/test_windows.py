"""On networks whose connections have a window, word of a receive waits in its host's port."""

import pytest

from sim.program import Compute, Group, Operation, Program, Recv, Send
from sim.program.jobs import Job, simulate
from sim.program.libraries import Libraries
from topologies import star

RATE, NBYTES = 10e6, 1_000_000
WORLD = Group("world", (0, 1, 2), "gloo", 2)


def received_s(nbytes: int, **settings: int) -> float:
    """When rank 1 has what rank 0 sends it, which it asks for as it begins to send to rank 2.

    Both others have come before it.
    """
    lists = (
        [Operation(Send(WORLD, 1, NBYTES), category="message")],
        [
            Operation(Compute(0.01), "host"),
            Operation(Send(WORLD, 2, nbytes), None, (0,), category="message"),
            Operation(Recv(WORLD, 0, NBYTES), None, (0,), category="message", name="receive"),
        ],
        [Operation(Recv(WORLD, 1, nbytes), category="message")],
    )
    graph = star(3, bandwidth=RATE, latency=1e-6)
    graph.graph.update(settings)
    program = Program("pass on", 3, lists.__getitem__)
    (found,) = simulate([Job(program, (0, 1, 2))], Libraries.on("gloo", graph, 3))
    return next(span.end for span in found.spans[1] if span.name == "receive")


def test_word_of_a_receive_stands_behind_what_its_host_sends_to_others() -> None:
    plain = received_s(NBYTES)
    assert received_s(NBYTES, window=100_000, segment=10_000) == pytest.approx(
        plain + 80_000 / RATE, rel=0.03
    )
    assert received_s(20_000, window=100_000, segment=10_000) == pytest.approx(
        plain + 20_000 / RATE, rel=0.03
    )


def test_without_a_window_nothing_waits() -> None:
    assert received_s(NBYTES) == pytest.approx(received_s(8), rel=1e-3)

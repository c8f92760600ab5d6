"""On networks with a window, the announcement of a receive queues at its host's port."""

import pytest

from ringside.sim.collective import Collective
from ringside.sim.program import Call, Compute, Group, Operation, Program, Recv, Send
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.topologies import star

RATE, NBYTES, LATER_S = 10e6, 1_000_000, 0.02
WORLD = Group("world", (0, 1, 2), "gloo", 2)
PAIR = Group("pair", (0, 1), "gloo", 2)


def received_s(nbytes: int, **settings: int) -> float:
    """Return when rank 1 has rank 0's message, whose receive it posts as it begins to send to rank 2.

    The other two ranks arrive first.
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
    return _ends(lists, "receive", settings)


def broadcast_s(sent: int, **settings: int) -> float:
    """Return when rank 1 has rank 0's broadcast, at which it arrives while it sends to rank 2."""
    broadcast = Operation(
        Call(PAIR, "broadcast", Collective("broadcast", 2, NBYTES)), category="collective", name="broadcast"
    )
    lists = (
        [broadcast],
        [
            Operation(Send(WORLD, 2, sent), category="message"),
            Operation(Compute(LATER_S), "host"),
            Operation(broadcast.action, None, (1,), category="collective", name="broadcast"),
        ],
        [Operation(Recv(WORLD, 1, sent), category="message")],
    )
    return _ends(lists, "broadcast", settings)


def _ends(lists: tuple[list[Operation], ...], name: str, settings: dict[str, int]) -> float:
    graph = star(3, bandwidth=RATE, latency=1e-6)
    graph.graph.update(settings)
    program = Program("pass on", 3, lists.__getitem__)
    (found,) = simulate([PlacedProgram(program, (0, 1, 2))], Libraries.on("gloo", graph, 3))
    return next(span.end for span in found.spans[1] if span.name == name)


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


def test_so_does_word_of_a_rank_that_comes_to_a_collective() -> None:
    plain = broadcast_s(NBYTES)
    windowed = broadcast_s(NBYTES, window=100_000, segment=10_000)
    assert windowed == pytest.approx(plain + 90_000 / RATE, abs=10_000 / RATE)
    assert broadcast_s(8, window=100_000, segment=10_000) == pytest.approx(plain, rel=1e-3)

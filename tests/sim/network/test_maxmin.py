"""Max-min fairness by its definition, at every moment of any arrivals and departures."""

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.network import maxmin
from ringside.sim.network.maxmin import LinkSharing

CLOSE = 1e-9


@pytest.fixture(params=["interpreted", "compiled"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    is_compiled = request.param == "compiled"
    if is_compiled:
        pytest.importorskip("numba")
    monkeypatch.setattr(maxmin, "MUCH", -1 if is_compiled else inf)
    if not is_compiled:
        monkeypatch.setattr(maxmin, "available", lambda: False)
    return is_compiled


def shared(bandwidths: list[float], ways: list[list[int]], nbytes: int = 1000) -> LinkSharing:
    sharing = LinkSharing(bandwidths)
    for way in ways:
        sharing.begin(sharing.open(way), nbytes, 0.0)
    sharing.settle(0.0)
    return sharing


def rates(bandwidths: list[float], ways: list[list[int]]) -> list[float]:
    found = shared(bandwidths, ways).rates()
    return [found[stream] for stream in range(len(ways))]


@pytest.mark.usefixtures("compiled")
def test_two_flows_on_one_link_have_half_each() -> None:
    assert rates([10.0], [[0], [0]]) == [5.0, 5.0]


@pytest.mark.usefixtures("compiled")
def test_the_parking_lot() -> None:
    """One flow over all links, another on each; Bertsekas and Gallager, section 6.5.2."""
    assert rates([1.0] * 3, [[0, 1, 2], [0], [1], [2]]) == [0.5] * 4
    assert rates([1.0, 2.0], [[0, 1], [0], [1]]) == [0.5, 0.5, 1.5]
    assert rates([6.0, 6.0], [[0, 1], [0], [0], [1]]) == [2.0, 2.0, 2.0, 4.0]


@pytest.mark.usefixtures("compiled")
def test_a_flow_that_is_limited_elsewhere_leaves_its_share_to_others() -> None:
    assert rates([1.0, 10.0], [[0, 1], [1]]) == [1.0, 9.0]


@pytest.mark.usefixtures("compiled")
def test_thousands_of_flows_share_one_link_and_end_together() -> None:
    sharing = shared([1e9], [[0]] * 5000)
    assert sharing.next_end == pytest.approx(1000 * 5000 / 1e9, rel=CLOSE)
    assert sharing.ending == list(range(5000))


def test_who_shares_no_link_with_a_change_is_not_looked_at() -> None:
    sharing = shared([1.0, 1.0, 1.0], [[0], [0, 1]])
    lonely = sharing.open([2])
    filled = sharing._filled
    sharing.begin(lonely, 10, 1.0)
    sharing.settle(1.0)
    assert sharing._filled - filled == 1
    sharing.end(lonely)
    sharing.settle(2.0)
    assert sharing._filled - filled == 1


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[float], list[list[int]], list[dict[int, int]]]:
    """Draw bandwidths, routes, and the streams with their bytes that begin at some moments."""
    number = draw(st.integers(1, 6))
    figures = st.sampled_from([1.0, 2.0, 3.0, 7.0]) | st.floats(1e-3, 1e3)
    bandwidths = draw(st.lists(figures, min_size=number, max_size=number))
    way = st.lists(st.integers(0, number - 1), min_size=1, max_size=number, unique=True)
    ways = draw(st.lists(way, min_size=1, max_size=12))
    begun = st.dictionaries(st.integers(0, len(ways) - 1), st.integers(1, 1000), max_size=6)
    return bandwidths, ways, draw(st.lists(begun, min_size=1, max_size=8))


def check_fair(sharing: LinkSharing, bandwidths: list[float], ways: list[list[int]]) -> None:
    """Check that no link exceeds its bandwidth, and each flow has a full link on which none is faster."""
    found = sharing.rates()
    on_link = {link: [s for s in found if link in ways[s]] for link in range(len(bandwidths))}
    full = set()
    for link, streams in on_link.items():
        carried = sum(found[stream] for stream in streams)
        assert carried <= bandwidths[link] * (1 + CLOSE)
        if carried >= bandwidths[link] * (1 - CLOSE):
            full.add(link)
    for stream, rate in found.items():
        assert rate > 0
        assert any(
            link in full and rate >= max(found[other] for other in on_link[link]) * (1 - CLOSE)
            for link in ways[stream]
        )


def play(history: tuple[list[float], list[list[int]], list[dict[int, int]]]) -> list[tuple[float, int]]:
    """Return the ends of streams, after checking the rates at every moment."""
    bandwidths, ways, moments = history
    sharing = LinkSharing(bandwidths)
    for way in ways:
        sharing.open(way)
    ended: list[tuple[float, int]] = []
    carried: dict[int, float] = {}
    asked: dict[int, int] = {}
    time, coming = 0.0, [(float(place), begun) for place, begun in enumerate(moments)]
    while coming or sharing.next_end < inf:
        until = min(sharing.next_end, coming[0][0] if coming else inf)
        for stream, rate in sharing.rates().items():
            carried[stream] += rate * (until - time)
        time = until
        if sharing.next_end == time:
            for stream in sharing.ending:
                assert carried.pop(stream) == pytest.approx(asked.pop(stream), rel=1e-6)
                ended.append((sharing.end_of(stream), stream))
                sharing.end(stream)
        if coming and coming[0][0] == time:
            for stream, nbytes in coming.pop(0)[1].items():
                if stream not in asked:
                    sharing.begin(stream, nbytes, time)
                    asked[stream], carried[stream] = nbytes, 0.0
        sharing.settle(time)
        assert sharing.rates().keys() == asked.keys()
        check_fair(sharing, bandwidths, ways)
    assert not asked
    return ended


@given(histories())
def test_rates_are_fair_at_every_moment_and_no_byte_is_lost(
    history: tuple[list[float], list[list[int]], list[dict[int, int]]],
) -> None:
    play(history)


@given(histories())
def test_compiled_or_not_the_answer_is_the_same(
    history: tuple[list[float], list[list[int]], list[dict[int, int]]],
) -> None:
    pytest.importorskip("numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maxmin, "available", lambda: False)
        interpreted = play(history)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maxmin, "MUCH", -1)
        assert play(history) == interpreted


@given(histories(), st.randoms())
def test_the_order_in_which_links_and_streams_are_named_changes_nothing(
    history: tuple[list[float], list[list[int]], list[dict[int, int]]], draw: random.Random
) -> None:
    bandwidths, ways, moments = history
    links, streams = list(range(len(bandwidths))), list(range(len(ways)))
    draw.shuffle(links)
    draw.shuffle(streams)
    renamed = (
        [bandwidths[link] for link in links],
        [[links.index(link) for link in ways[stream]] for stream in streams],
        [{streams.index(stream): nbytes for stream, nbytes in begun.items()} for begun in moments],
    )
    ended = [(time, streams[stream]) for time, stream in play(renamed)]
    assert sorted(ended) == sorted(play(history))


def test_a_stream_that_is_opened_later_joins_in() -> None:
    sharing = shared([10.0], [[0]])
    late = sharing.open([0, sharing.add_link(1.0)])
    sharing.begin(late, 5, 10.0)
    sharing.settle(10.0)
    assert sharing.rates() == {0: 9.0, late: 1.0}

"""Dispatch and combine of experts' tokens: how many places a token goes to, and what no time may break."""

from dataclasses import replace
from functools import cache
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ringside.sim.collective import Collective
from ringside.sim.libraries.experts.exchange import ExchangeTime, exchange_time, traffic_s
from ringside.sim.libraries.experts.kernels import EXPECTED
from ringside.sim.libraries.experts.measured import CALLERS, read_model, shipped_model
from ringside.sim.libraries.experts.mechanisms import MECHANISMS, NAMES
from ringside.sim.libraries.experts.ports import ports_of
from ringside.sim.libraries.experts.tokens import PHASES, TOKEN_BYTES, ExpertTokens
from ringside.sim.libraries.experts.work import work_of
from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.library import Library

CLUSTERS = (
    ("dgx-h100:1", None), ("dgx-h100:2", None), ("dgx-h200:8", None), ("dgx-b300:4", None),
    ("gb200-nvl72:1", 8), ("gb300-nvl72:1", 64),
)  # fmt: skip

WHERE = st.sampled_from(CLUSTERS)
BY = st.sampled_from(NAMES)
FITTED = st.sampled_from(sorted(MECHANISMS))
EXCHANGES = st.builds(
    ExpertTokens,
    tokens=st.integers(1, 20_000), hidden=st.sampled_from([2048, 4096, 7168]), topk=st.integers(1, 10),
    experts=st.sampled_from([64, 128, 256]), dispatch_dtype=st.sampled_from(sorted(TOKEN_BYTES)),
    routing=st.sampled_from(["random", "spread"]), imbalance=st.floats(1, 8),
    sms=st.sampled_from([4, 20, 24]),
)  # fmt: skip


@cache
def library(cluster: str, ranks: int | None) -> Library:
    return find_library("nccl", cluster, ranks=ranks)


def timed(where: tuple[str, int | None], exchange: ExpertTokens, by: str, **how: str) -> ExchangeTime:
    return exchange_time(library(*where), exchange, by, **how)


def runs(where: tuple[str, int | None], by: str) -> bool:
    return by not in MECHANISMS or not MECHANISMS[by].refuses(ports_of(library(*where)))


@pytest.mark.parametrize(("places", "topk"), [(2, 3), (4, 3), (8, 2), (4, 4)])
def test_the_mean_number_of_places_is_that_of_all_draws(places: int, topk: int) -> None:
    exchange = ExpertTokens(tokens=1, topk=topk, experts=8)

    def mean(experts: int) -> float:
        counts = [len({one * places // 8 for one in draw}) for draw in combinations(range(experts), topk)]
        return sum(counts) / len(counts)

    assert exchange.distinct(places) == pytest.approx(mean(8))
    half = replace(exchange, groups=places, topk_groups=places // 2)
    assert half.distinct(places) == pytest.approx(mean(4))
    assert replace(half, routing="spread").distinct(places) == min(topk, places // 2)
    assert replace(exchange, routing="spread").distinct(places) == min(places, topk)
    assert replace(exchange, topk=8).distinct(places) == places


@pytest.mark.parametrize(("places", "groups", "chosen", "topk"), [(2, 4, 2, 3), (2, 8, 3, 2), (4, 2, 1, 2)])
def test_groups_limit_where_a_token_goes(places: int, groups: int, chosen: int, topk: int) -> None:
    exchange = ExpertTokens(tokens=1, topk=topk, experts=8, groups=groups, topk_groups=chosen)
    size, each = 8 // groups, 8 // places
    counts = [
        len({expert // each for expert in draw})
        for some in combinations(range(groups), chosen)
        for draw in combinations([one * size + place for one in some for place in range(size)], topk)
    ]
    assert exchange.distinct(places) == pytest.approx(sum(counts) / len(counts))


def test_ports_are_those_of_data_sheets() -> None:
    expected = {
        "dgx-h100:2": (16, 2, 450e9, 50e9, 132), "dgx-h200:8": (64, 8, 450e9, 50e9, 132),
        "hgx-h800:4": (32, 4, 200e9, 50e9, 132), "gb200-nvl72:1": (72, 1, 900e9, 50e9, 148),
    }  # fmt: skip
    for cluster, (ranks, nodes, nvlink, network, multiprocessors) in expected.items():
        ports = ports_of(library(cluster, None))
        assert (ports.ranks, ports.nodes, ports.multiprocessors) == (ranks, nodes, multiprocessors)
        assert ports.nvlink == pytest.approx(nvlink)
        assert ports.network == pytest.approx(network)


def test_what_crosses_links_in_closed_form() -> None:
    """On two machines a copy goes to the other one with C(128, 8) / C(256, 8) of no expert there."""
    exchange, ports = ExpertTokens(tokens=1000, dispatch_dtype="bf16"), ports_of(library("dgx-h100:2", None))
    nbytes = 1000 * 2 * 7168
    missed = comb(128, 8) / comb(256, 8)
    gpus = 16 * (1 - comb(240, 8) / comb(256, 8))
    inside, across = traffic_s("deepep", exchange, ports, ("dispatch",))
    assert across == pytest.approx(nbytes * (1 - missed) / ports.network)
    assert inside == pytest.approx(nbytes * gpus * (1 - 2 / 16) / ports.nvlink)
    inside, across = traffic_s("deepep_ll", exchange, ports, ("dispatch",))
    assert across == pytest.approx(8 * nbytes / 2 / ports.network)
    assert inside == pytest.approx(8 * nbytes * (1 / 2 - 1 / 16) / ports.nvlink)


@settings(max_examples=150)
@given(WHERE, EXCHANGES, FITTED, st.sampled_from(["tokens", "hidden", "topk", "imbalance"]))
def test_more_is_never_faster(
    where: tuple[str, int | None], exchange: ExpertTokens, by: str, more: str
) -> None:
    assume(runs(where, by))
    larger = replace(exchange, **{more: 2 * getattr(exchange, more)})
    assume(larger.imbalance <= 8)
    one, other = (timed(where, each, by) for each in (exchange, larger))
    for phase in PHASES:
        assert getattr(one, phase).time_s <= getattr(other, phase).time_s * (1 + 1e-9)


@settings(max_examples=150)
@given(WHERE, EXCHANGES, FITTED)
def test_wider_types_are_never_faster(where: tuple[str, int | None], exchange: ExpertTokens, by: str) -> None:
    assume(runs(where, by))
    times = [
        timed(where, replace(exchange, dispatch_dtype=dtype), by).dispatch.time_s
        for dtype in sorted(TOKEN_BYTES, key=lambda one: TOKEN_BYTES[one])
    ]
    assert times == sorted(times)


@settings(max_examples=200)
@given(WHERE, EXCHANGES, BY, st.sampled_from(CALLERS))
def test_no_answer_beats_its_traffic(
    where: tuple[str, int | None], exchange: ExpertTokens, by: str, caller: str
) -> None:
    assume(runs(where, by) and (caller == "kernels" or by in shipped_model().calls[caller]))
    answer, ports = timed(where, exchange, by, caller=caller), ports_of(library(*where))
    for phase in PHASES:
        band = getattr(answer, phase)
        assert 0 < band.low_s <= band.time_s <= band.high_s
        if by in MECHANISMS:
            assert band.low_s >= max(traffic_s(by, exchange, ports, (phase,))) * (1 - 1e-9)
    total = answer.dispatch.time_s + answer.combine.time_s + answer.prepare.time_s
    assert answer.total.time_s == pytest.approx(total)
    across = answer.across_bytes / ports.network if ports.nodes > 1 else 0.0
    assert total >= max(answer.inside_bytes / ports.nvlink, across) * (1 - 1e-6)


def test_the_farther_from_rows_the_wider() -> None:
    for fits in shipped_model().phases.values():
        for fit in fits.values():
            several = [fit.factor(nodes, 8 * nodes) for nodes in (fit.nodes, 4, 16)]
            assert several == sorted(several)
            assert several[0] < several[-1]
            assert fit.factor(1, 4) == pytest.approx(np.exp(fit.spread))
            assert fit.factor(1, 72) > fit.factor(1, 4)


def test_faster_cards_help_what_crosses_them() -> None:
    fast, slow = library("dgx-h100:4", None), find_library("nccl", "dgx-h100:4", {"nic": "25GB/s"})
    for by in ("deepep", "deepep_ll"):
        times = [exchange_time(one, ExpertTokens(tokens=8192), by).dispatch.time_s for one in (slow, fast)]
        assert 1.7 < times[0] / times[1] < 2.1


def test_fits_have_every_parameter_and_come_back_from_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = shipped_model()
    for name, mechanism in MECHANISMS.items():
        assert set(model.phases[name]) == set(mechanism.phases)
        for phase, kernel in mechanism.phases.items():
            fit = model.phases[name][phase]
            assert set(fit.values) == set(EXPECTED[kernel])
            shares = [fit.values[one] for one, prior in EXPECTED[kernel].items() if prior.is_share]
            assert all(0 < share < 1 for share in shares)
    model.write(tmp_path / "fits.yaml")
    assert read_model(tmp_path / "fits.yaml") == model


def test_the_normal_kernels_cross_cards_beyond_eight_ranks_of_a_domain() -> None:
    exchange = ExpertTokens(tokens=4096)
    eight, more = (timed(("gb200-nvl72:1", ranks), exchange, "deepep") for ranks in (8, 16))
    assert eight.across_bytes == eight.prepare.time_s == 0
    assert min(more.across_bytes, more.prepare.time_s) > 0
    assert timed(("gb200-nvl72:1", 16), exchange, "deepep_ll").across_bytes == 0
    with pytest.raises(ValueError, match="its 12 ranks of an NVLink domain are no multiple of 8"):
        timed(("gb200-nvl72:1", 12), replace(exchange, experts=240), "deepep")


def test_few_experts_leave_multiprocessors_idle() -> None:
    ports = ports_of(library("dgx-h100:1", None))
    few, many = (ExpertTokens(tokens=1024, topk=2, experts=count) for count in (8, 128))
    times = [shipped_model().kernels_us("deepep_ll", "dispatch", [(one, ports)])[0] for one in (few, many)]
    assert times[0] > 2 * times[1]
    work = work_of([(few, ports), (many, ports)], "dispatch")
    assert list(work.copies) == [2, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 0}, "`tokens` 0; write 1 or more"),
        ({"topk": 300}, "`topk` 300 of 256 experts; write 256 or less"),
        ({"sms": 7}, "`sms` 7; a channel has two, write an even number"),
        ({"imbalance": 0.5}, "`imbalance` 0.5 times the mean; write 1 or more"),
        ({"imbalance": float("nan")}, "write 1 or more"),
        ({"dispatch_dtype": "int4"}, "`dispatch_dtype` 'int4'; write one of bf16, fp8, nvfp4"),
        ({"routing": "even"}, "unknown routing 'even'; write one of random, spread"),
        ({"experts": 100}, "100 experts do not divide by 16 ranks"),
        ({"groups": 3}, "3 groups of 256 experts on 16 ranks; write a divisor of the experts"),
        ({"groups": 64, "topk_groups": 1}, "`topk` 8 of 4 experts in 1 of 64 groups; write 4 or less"),
        ({"topk_groups": 0}, "`topk_groups` 0; write 1 or more"),
        ({"imbalance": 17.0}, "the busiest of 16 ranks has 17 times the mean; write 1 to 16"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        timed(("dgx-h100:2", None), ExpertTokens(**{"tokens": 128, **changes}), "deepep")


@pytest.mark.parametrize(
    ("where", "by", "caller", "message"),
    [
        (("dgx-h100:2", None), "nvlink", "kernels", "it needs one NVLink domain, and the ranks are on 2"),
        (("dgx-h100:1", None), "nvlink", "vllm", "calls of vllm with it were not measured"),
        (("dgx-h100:1", None), "nccl", "trtllm", "calls of trtllm with NCCL were not measured"),
        (("dgx-h100:1", None), "pplx", "kernels", "unknown exchange 'pplx'; write one of deepep,"),
        (("dgx-h100:1", 1), "deepep", "kernels", "two ranks or more on machines with NVIDIA GPUs"),
    ],
)
def test_where_a_library_does_not_run(
    where: tuple[str, int | None], by: str, caller: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        timed(where, ExpertTokens(tokens=1), by, caller=caller)


def test_a_phase_among_a_group_is_the_exchange_s() -> None:
    nccl = library("dgx-h100:2", None)
    exchange = ExpertTokens(tokens=4096, dispatch_dtype="bf16")
    answer = exchange_time(nccl, exchange, "deepep")
    sums = 0.0
    for phase in PHASES:
        one = Collective("all_to_all", 16, 4096 * 8 * 7168 * 2, tokens=exchange.phase(phase, "deepep"))
        estimate = nccl.time(one, nccl.choose(one))
        assert estimate.algorithm == "deepep"
        assert estimate.time_lo_s < estimate.time_s < estimate.time_hi_s
        sums += estimate.time_s
    assert sums == pytest.approx(answer.total.time_s)

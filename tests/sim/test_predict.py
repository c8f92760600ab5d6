import inspect
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringside.sim.libraries.scheduled
from ringside.sim.algorithms import algorithms_for, schedule
from ringside.sim.calibration import CalibrationError
from ringside.sim.collective import KINDS, Collective
from ringside.sim.engine.events import simulate
from ringside.sim.engine.model import CLOSED_FORMS, closed_form, uniform
from ringside.sim.libraries import gloo
from ringside.sim.libraries.library import LawError
from ringside.sim.libraries.scheduled import evaluate
from ringside.sim.parameters import Parameters, preset_of
from ringside.sim.predict import predict
from ringside.topologies import dgx_h100, make, star
from tests.made_up import calibration

MIB = 1 << 20


def fit(algorithm: str, launch: float = 20e-6) -> dict[str, Any]:
    parameters = Parameters(alpha=10e-6, beta=1e-9, gamma=1e-10, launch=launch)
    return {"algorithm": algorithm, "parameters": parameters}


@pytest.mark.parametrize(("algorithm", "kind"), CLOSED_FORMS)
@pytest.mark.parametrize("gamma", [0.0, 1e-11, 1e-9])
def test_the_model_engine_is_exact_where_chunks_are_equal(algorithm: str, kind: str, gamma: float) -> None:
    parameters = Parameters(alpha=5e-6, beta=1 / 25e9, gamma=gamma)
    for ranks in (*range(1, 12), 16, 33):
        for nbytes in (0, 1, 1000, ranks * MIB):
            plan = schedule(algorithm, Collective(kind, ranks, nbytes))
            closed = closed_form(algorithm, plan.collective, parameters)
            if closed is not None:
                simulated, engine, _ = evaluate(plan, star(ranks), parameters, "simpy")
                assert engine == "simpy"
                equal = nbytes % ranks == 0
                assert closed == pytest.approx(simulated, rel=1e-9 if equal else 1e-2, abs=1e-18), (
                    ranks,
                    nbytes,
                )


def test_the_model_engine_says_where_it_has_no_answer() -> None:
    with pytest.raises(ValueError, match=r"tree all_reduce of 4 B on star has no closed form; write"):
        predict(Collective("all_reduce", 4, 4), star(4), algorithm="tree", engine="model")
    with pytest.raises(ValueError, match="no closed form"):
        predict(
            Collective("all_reduce", 8, 64), dgx_h100(), library="ideal", algorithm="ring", engine="model"
        )


def test_auto_simulates_what_is_small_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    collective = Collective("all_reduce", 8, MIB)
    small = predict(collective, star(8), algorithm="ring")
    monkeypatch.setattr(ringside.sim.libraries.scheduled, "MAX_TRANSFERS", 10)
    large = predict(collective, star(8), algorithm="ring")
    assert (small.engine, large.engine) == ("simpy", "model")
    assert small.time_s == pytest.approx(large.time_s, rel=1e-9)
    assert predict(collective, star(8), algorithm="ring", traced=True).engine == "simpy"
    assert predict(collective, dgx_h100(), library="ideal", algorithm="ring").engine == "simpy"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nbytes", [0, 1000, MIB, 64 * MIB])
def test_auto_is_the_quickest_algorithm(kind: str, nbytes: int) -> None:
    for graph in (star(9), star(8, 1e9, 0.0), make("leaf-spine", 2, {"oversubscription": "4"})):
        collective = Collective(kind, 8, nbytes)
        names = [
            name for name in algorithms_for(kind) if name != "hierarchical"
        ]  # no machines of several ranks
        times = [predict(collective, graph, algorithm=name).time_s for name in names]
        chosen = predict(collective, graph)
        assert chosen.time_s == min(times)
        assert chosen.algorithm.partition(":")[0] in names


@pytest.mark.parametrize("start", [1000, 1024, 1025, 4095])
@pytest.mark.parametrize("factor", [2, 3])
@pytest.mark.parametrize("latency", ["5us", "50us"])
@pytest.mark.parametrize("algorithm", ["ring", "tree", "double_binary_tree", "halving_doubling", "direct"])
def test_time_does_not_fall_over_a_sweep(algorithm: str, latency: str, factor: int, start: int) -> None:
    graph = make("star", 16, {"latency": latency})
    sizes = [start * factor**power for power in range(30) if start * factor**power < 32 * MIB]
    times = [predict(Collective("all_reduce", 16, size), graph, algorithm=algorithm).time_s for size in sizes]
    assert times == sorted(times)


def test_gloos_first_message_waits_for_its_announcement() -> None:
    collective, graph = Collective("all_reduce", 4, MIB), star(4, bandwidth=1e9, latency=1e-3)
    played = simulate(gloo.all_reduce(collective), graph).time_s
    assert predict(collective, graph, library="gloo").time_s == pytest.approx(played + 1e-3)
    assert predict(Collective("all_reduce", 1, MIB), star(1), library="gloo").time_s == 0


@given(st.integers(1, 16), st.integers(0, MIB), st.sampled_from(["ideal", "gloo"]))
@settings(max_examples=50)
def test_any_size_on_any_count_has_a_time_and_bandwidths(ranks: int, nbytes: int, library: str) -> None:
    found = predict(Collective("all_reduce", ranks, nbytes), star(16), library=library)
    assert (found.time_s > 0) == (ranks > 1)
    assert found.time_lo_s == found.time_s == found.time_hi_s
    if ranks > 1:
        assert found.algbw == nbytes / found.time_s
        assert found.busbw == pytest.approx(found.algbw * 2 * (ranks - 1) / ranks)
    else:
        assert found.algbw == found.busbw == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "warp"}, "unknown engine 'warp'; write one of auto, simpy"),
        ({"library": "mpich"}, "unknown library 'mpich'; write mpi "),
        ({"algorithm": "star"}, "unknown algorithm 'star'; write one of ring"),
        ({"library": "gloo", "algorithm": "tree"}, "no model of tree all_reduce in gloo"),
    ],
)
def test_unknown_words_are_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predict(Collective("all_reduce", 4, 64), star(4), **arguments)  # type: ignore[arg-type]


def test_more_ranks_than_the_cluster_has_are_refused_even_without_a_name() -> None:
    graph = star(4)
    with pytest.raises(ValueError, match="8 ranks, but star has 4"):
        predict(Collective("all_reduce", 8, 64), graph)
    del graph.graph["name"]
    with pytest.raises(ValueError, match="8 ranks"):
        predict(Collective("all_reduce", 8, 64), graph)


def test_a_calibration_replaces_the_presets_and_gives_a_band() -> None:
    found = predict(
        Collective("all_reduce", 4, 4000), star(4), algorithm="ring", calibration=calibration(fit("ring"))
    )
    expected = 20e-6 + 6 * (10e-6 + 1e-6) + 3 * 1e-7
    assert found.time_s == pytest.approx(expected, rel=1e-9)
    assert found.time_lo_s == pytest.approx(0.9 * expected)
    assert found.time_hi_s == pytest.approx(1.2 * expected)


def test_auto_with_a_calibration_chooses_among_what_was_fitted() -> None:
    both = calibration(fit("tree", launch=1.0), fit("ring", launch=2.0))
    assert predict(Collective("all_reduce", 4, 64), star(4), calibration=both).algorithm == "tree"


def test_an_algorithm_that_was_not_fitted_is_refused() -> None:
    with pytest.raises(CalibrationError, match="no fit for ideal/tree, only for ideal/ring"):
        predict(
            Collective("all_reduce", 4, 64), star(4), algorithm="tree", calibration=calibration(fit("ring"))
        )


def test_a_prediction_that_physics_forbids_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    form = CLOSED_FORMS["ring", "all_reduce"]
    monkeypatch.setitem(CLOSED_FORMS, ("ring", "all_reduce"), lambda n, s, p: form(n, s, p) / 2)
    with pytest.raises(LawError, match="below the"):
        predict(Collective("all_reduce", 8, MIB), star(8), algorithm="ring", engine="model")


@pytest.mark.parametrize("graph", [star(8, 10e9, 3e-6), dgx_h100(), make("leaf-spine", 2)], ids=str)
def test_scaling_to_a_graphs_own_parameters_changes_nothing(graph) -> None:  # type: ignore[no-untyped-def]
    scaled = preset_of(graph).on(graph)
    for hop in graph.edges:
        for key in ("bandwidth", "latency"):
            assert scaled.edges[hop][key] == pytest.approx(graph.edges[hop][key], rel=1e-12)


def test_scaling_keeps_the_proportions_and_the_original() -> None:
    graph = make("leaf-spine", 2, {"oversubscription": "8"})
    asked = Parameters(alpha=1e-3, beta=1e-6)
    scaled = asked.on(graph)
    assert preset_of(scaled).alpha == pytest.approx(1e-3)
    assert preset_of(scaled).beta == pytest.approx(1e-6)
    ratio = scaled.edges["gpu0", "leaf0"]["bandwidth"] / scaled.edges["leaf0", "spine"]["bandwidth"]
    assert ratio == pytest.approx(2)
    assert dict(graph.edges) == dict(make("leaf-spine", 2, {"oversubscription": "8"}).edges)


def test_a_network_without_latency_gets_it_shared_by_its_links() -> None:
    scaled = Parameters(alpha=4e-6, beta=1e-9).on(star(4, latency=0.0))
    assert preset_of(scaled).alpha == pytest.approx(4e-6)


def test_the_textbook_network_is_recognised() -> None:
    assert uniform(star(5))
    assert uniform(make("nvlink_switch", 8))
    assert not uniform(make("leaf-spine", 1))
    assert not uniform(dgx_h100())
    slow = star(5)
    slow.edges["gpu1", "switch"]["bandwidth"] /= 10
    assert not uniform(slow)


def test_a_prediction_is_plain_data() -> None:
    found = predict(Collective("all_reduce", 4, 64), star(4), algorithm="ring")
    assert replace(found, time_s=1.0, time_hi_s=1.0).algbw == 64
    assert "graph" in inspect.signature(predict).parameters

"""Laws of the forms and the correction of NCCL's measured model, for any figures."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.libraries.gaussian import EIGHTY
from ringside.sim.libraries.nccl import SYSTEMS, Settings, communicator
from ringside.sim.libraries.nccl.communicator import SiteFacts
from ringside.sim.libraries.nccl.constants import HOP_US
from ringside.sim.libraries.nccl.graph.graph import PathClass
from ringside.sim.libraries.nccl.graph.system import nvlink_in_datasheet
from ringside.sim.libraries.nccl.measured import (
    ALONE,
    AMPLITUDE,
    LEAST_AMPLITUDE,
    SITE_LATENCY,
    MeasuredModel,
    corrected,
    log_form,
)
from ringside.sim.libraries.nccl.message_times import FORMS, PARAMETERS, Launch, Task, time_us, work_of
from ringside.sim.libraries.nccl.send_times import SEND_PARAMETERS, SENDS
from ringside.validation.nccl.priors import priors, send_priors

MACHINES = ("dgx-h100", "dgx-b200", "abci-v100", "polaris-a100", "rtx4090-pcie")


def expected(machine, task=None):
    known = send_priors() if task and task.pair == SENDS else priors(SYSTEMS[machine])
    return {prior.name: prior.value for prior in known}


@st.composite
def tasks(draw):
    machine = draw(st.sampled_from(MACHINES))
    comm = communicator(machine, draw(st.sampled_from((1, 2, 3, 8, 512))))
    able = {"tree", "ring", "p2p"}
    if "nvls" in comm.usable:
        able.add("nvls" if comm.nodes == 1 else "nvls_tree")
    kind, pair = draw(
        st.sampled_from(
            sorted(
                (kind, pair)
                for kind, pair in FORMS
                if pair[0] in (able if kind == "all_reduce" else {"ring", "p2p"})
            )
        )
    )
    return machine, Task(comm, kind, draw(st.integers(1, 2**33)), pair)


@given(tasks())
@settings(max_examples=60)
def test_every_time_is_a_time_and_slower_parts_make_it_no_shorter(drawn):
    machine, task = drawn
    values, work = expected(machine, task), work_of([task])
    (usual,) = time_us(work, values)
    assert 0 < usual < np.inf
    for name, value in values.items():
        worse = (
            value / 2 if "GBps" in name or "rate" in name or name.endswith(("_ll", "_ll128")) else value * 2
        )
        shares = "channel_inside", "inside", "connections", "cards"
        busy = "tree_one", "tree_two", "tree_many", "nvls_gather", "nvls_tree_many", "collnet"
        if name in busy or (task.pair == SENDS and name in shares):
            worse = value / 2
        (slower,) = time_us(work, values | {name: worse})
        assert slower >= usual * (1 - 1e-12), name


@given(tasks())
@settings(max_examples=30)
def test_slopes_are_those_of_the_time(drawn):
    machine, task = drawn
    values, work = expected(machine, task), work_of([task])
    _, slopes = log_form(work, values)
    assert slopes.shape == (len(values), 1)
    # every parameter that a time is made of is a cost or a rate: together they cannot exceed the whole
    assert np.abs(slopes).max() <= 1.01


def test_a_slow_host_takes_over_from_a_quick_kernel():
    comm = communicator("dgx-h100", 1)
    alone, driven, threads = (
        Task(comm, "all_reduce", 8, ("tree", "ll"), launch)
        for launch in (Launch(), Launch(gpus=8), Launch(threads=8))
    )
    quick, slow, middle = time_us(work_of([alone, driven, threads]), expected("dgx-h100"))
    assert quick < middle < slow
    assert slow == pytest.approx(8 * 4.7, rel=0.02)
    large = [
        Task(comm, "all_reduce", 2**30, ("nvls", "simple"), launch) for launch in (Launch(), Launch(gpus=8))
    ]
    one, eight = time_us(work_of(large), expected("dgx-h100"))
    assert eight == pytest.approx(one, rel=1e-6)


@pytest.mark.parametrize(("kind", "pair"), [("all_reduce", ("ring", "ll")), ("all_to_all", SENDS)])
def test_an_idle_gpu_waits_for_a_call_from_torch_whatever_the_size(kind, pair):
    comm = communicator("dgx-h100", 1)
    for nbytes in (2**10, 2**30):
        alone = Task(comm, kind, nbytes, pair)
        values = expected("dgx-h100", alone)
        called, usual = time_us(work_of([replace(alone, launch=Launch(torch=True)), alone]), values)
        assert called - usual == pytest.approx(values["torch_us"])


def test_a_switch_sums_in_loops_over_a_chunk_for_each_head_and_channel():
    comm = communicator("dgx-h100", 1)
    values = expected("dgx-h100")
    sizes = {2**22: 2, 2**25: 8, 2**28: 32, 2**31: 128}  # 16 KiB to 128 KiB on 16 channels and 8 heads
    work = work_of(Task(comm, "all_reduce", nbytes, ("nvls", "simple")) for nbytes in sizes)
    more, usual = (time_us(work, values | {"nvls_loop_us": loop_us}) for loop_us in (7.0, 6.0))
    assert more - usual == pytest.approx(list(sizes.values()))
    far = Task(communicator("dgx-h100", 2), "all_reduce", 2**30, ("nvls_tree", "simple"))
    (between,) = time_us(work_of([far]), values | {"nvls_tree": 10.0})
    assert between > 63 * 2 * 10 * HOP_US["net"]["nvls_tree"][2]  # 64 loops of 128 KiB


def test_ll_inside_a_node_is_slower_in_early_releases_and_nothing_else_is():
    early, late = (communicator("dgx-a100", 1, settings=Settings(version)) for version in ("2.18", "2.23"))
    values = expected("dgx-a100")
    for protocol, slower in (("ll", True), ("ll128", False), ("simple", False)):
        tasks = [Task(comm, "all_reduce", 2**20, ("ring", protocol)) for comm in (early, late)]
        work = replace(work_of(tasks), channels=np.full(2, 8.0), message=np.full(2, 4096.0))
        before, after = time_us(work, values)
        assert (before > 1.1 * after) if slower else (before == pytest.approx(after))


def test_the_correction_follows_its_rows_and_ends_where_there_are_none():
    comm = communicator("abci-v100", 4)
    rows = work_of([Task(comm, "all_reduce", size, ("ring", "simple")) for size in (2**24, 2**25, 2**26)])
    found = corrected(rows, np.array([0.1, 0.1, 0.1]), np.full(3, 0.05))
    mean, sigma = found.predict(rows)
    assert mean == pytest.approx(0.1, abs=0.02)
    assert (sigma < 0.06).all()
    others = work_of([Task(comm, "all_reduce", size, ("tree", "ll")) for size in (2**24, 8)])
    mean, sigma = found.predict(others)
    assert (mean == 0).all()
    assert sigma == pytest.approx(LEAST_AMPLITUDE)
    worse = corrected(rows, np.array([0.6, -0.5, 0.7]), np.full(3, 0.05))
    assert worse.predict(others)[1] == pytest.approx(AMPLITUDE)


def test_one_row_far_off_the_others_moves_the_correction_little():
    comm = communicator("abci-v100", 4)
    sizes = [2**20 + 2**10 * step for step in range(9)]
    rows = work_of([Task(comm, "all_reduce", size, ("ring", "simple")) for size in sizes])
    left = np.zeros(9)
    left[4] = 2.0
    mean, _ = corrected(rows, left, np.full(9, 0.05)).predict(rows)
    assert np.abs(mean).max() < 0.1


def test_facts_change_what_is_between_nodes_and_nothing_else():
    alone, many = communicator("alps-gh200", 1), communicator("alps-gh200", 4, settings=Settings("2.23"))
    facts = SiteFacts(ll128=False, channels=16)
    assert facts.on(alone) is alone
    assert facts.on(many).channels == 16
    assert SiteFacts().on(many) == many


def test_what_has_no_form_is_said():
    assert ("all_reduce", ("ring", "ll")) in FORMS
    assert ("broadcast", ("ring", "ll")) not in FORMS
    assert ("all_gather", ("pat", "simple")) not in FORMS


@pytest.mark.parametrize(
    "machine", ["abci-v100", "alps-gh200", "dgx1-v100", "perlmutter-a100", "summit-v100"]
)
def test_no_ring_without_a_switch_is_faster_than_the_links_that_join_its_gpus(machine):
    system = SYSTEMS[machine]
    links = dict.fromkeys(permutations(range(system.gpus), 2), 0.0)
    for a, b, count in system.mesh:
        links[a, b] = links[b, a] = count * system.nvlink_datasheet_rate
    if not system.mesh:
        sheet = nvlink_in_datasheet(system.nvlink, system.compute_capability)
        links = dict.fromkeys(links, sheet / (system.gpus - 1))
    nbytes = 2**30
    for gpus in range(2, system.gpus + 1):
        comm = communicator(system, 1, gpus)
        if comm.graphs.ring.type_intra is not PathClass.NVL:
            continue
        (taken,) = time_us(work_of([Task(comm, "all_reduce", nbytes, ("ring", "simple"))]), expected(machine))
        own = [sum(links[gpu, other] for other in range(gpus) if other != gpu) for gpu in range(gpus)]
        assert 2 * (gpus - 1) / gpus * nbytes / (taken * 1e-6) < min(own), gpus


@pytest.mark.parametrize(
    "machine", [name for name, one in SYSTEMS.items() if one.nvlink and not one.nvswitch]
)
def test_any_gpus_without_a_switch_use_some_of_their_links_and_no_more(machine):
    system = SYSTEMS[machine]
    for nodes, gpus in product((1, 2) if system.nics else (1,), range(1, system.ranks + 1)):
        if nodes * gpus > 1:
            work = work_of([Task(communicator(system, nodes, gpus), "all_reduce", 2**20, ("ring", "simple"))])
            assert 0 < work.used_inside[0] <= 1


def bare(nodes, *, pooled):
    values = expected("dgx-h100")
    rows = work_of([Task(communicator("dgx-h100", 2), "all_reduce", 8, ("tree", "ll"))])
    correction = corrected(rows, np.zeros(1), np.full(1, 0.05))
    return MeasuredModel(values, 1e-4 * np.eye(len(values)), correction, SiteFacts(), 0.03, nodes, pooled)


def test_intervals_grow_with_the_distance_from_what_was_measured():
    model = bare((2,), pooled=False)
    variances = {}
    for nbytes, pair in ((8, ("tree", "ll")), (2**34, ("ring", "simple"))):
        answers = [
            model.predict([Task(communicator("dgx-h100", nodes), "all_reduce", nbytes, pair)])
            for nodes in (2, 4, 64)
        ]
        assert all(answer.lo_s < answer.time_s < answer.hi_s for answer in answers)
        variances[nbytes] = [float(np.log(one.hi_s[0] / one.lo_s[0])) ** 2 for one in answers]
        assert sorted(variances[nbytes]) == variances[nbytes]
    measured, once, five_times = variances[8]
    assert five_times - measured == pytest.approx(5 * (once - measured), rel=0.05)
    assert variances[2**34][2] < five_times  # of bytes' times, which cards limit, less is open
    task = Task(communicator("dgx-h100", 2), "all_reduce", 8, ("ring", "ll"))
    alone, sited = (bare((2,), pooled=pooled).predict([task]) for pooled in (False, True))
    widths = [np.log(one.hi_s / one.lo_s) / (2 * EIGHTY) for one in (alone, sited)]
    assert np.sqrt((widths[1] / ALONE) ** 2 - widths[0] ** 2) == pytest.approx(SITE_LATENCY, rel=0.05)


def test_an_interval_is_narrower_where_latency_or_bytes_alone_count():
    values = expected("dgx-h100")
    model = replace(bare((2,), pooled=True), covariance=0.04 * np.eye(len(values)))

    def part(nodes, nbytes, model=model, pair=("ring", "simple"), kind="all_reduce"):
        task = Task(communicator("dgx-h100", nodes), kind, nbytes, pair)
        answer, (_, sigma, _) = model.predict([task]), model.log_us(work_of([task]))
        return float(np.log(answer.hi_s / answer.lo_s)[0] / (2 * EIGHTY * sigma[0]))

    sizes = [2**power for power in range(3, 36)]
    inside = [part(1, nbytes) for nbytes in sizes]
    assert inside[0] == pytest.approx(ALONE, rel=0.02)
    assert inside[-1] == pytest.approx(ALONE, rel=0.02)
    assert max(inside) > 0.99
    assert part(2, 8) == pytest.approx(ALONE, rel=0.02)
    assert part(2, 2**35) == pytest.approx(1.0)  # bytes between nodes: fabrics differ
    known = {prior.name: prior.value for prior in send_priors()}
    of_one_site = replace(model, pooled=False)
    assert [part(1, nbytes, of_one_site) for nbytes in (8, 2**35)] == pytest.approx([1.0, 1.0])
    of_sends = replace(model, values=known, covariance=0.04 * np.eye(len(known)))
    exchanged = [part(1, nbytes, of_sends, SENDS, "alltoall") for nbytes in (8, 2**35)]
    assert exchanged == pytest.approx([1.0, 1.0])


def test_the_order_of_a_sites_rows_changes_nothing():
    comm = communicator("dgx-h100", 2)
    tasks = [Task(comm, "all_reduce", 8 << power, ("ring", "simple")) for power in range(0, 25, 6)]
    seconds = [40e-6, 60e-6, 90e-6, 400e-6, 900e-6]
    model = bare((2,), pooled=True)
    one, other = (model.anchored(tasks[::way], seconds[::way]).predict(tasks) for way in (1, -1))
    for name in ("time_s", "lo_s", "hi_s"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9)


def test_a_sites_row_makes_what_the_correction_leaves_open_surer():
    model, comm = bare((2,), pooled=False), communicator("dgx-h100", 2)
    task = Task(comm, "all_reduce", 2**33, ("ring", "simple"))
    before = model.predict([task])
    after = model.anchored([task], [float(before.time_s[0])]).predict([task])
    assert (
        np.log(after.hi_s / after.time_s) / EIGHTY
        < 2 * model.noise
        < np.log(before.hi_s / before.time_s) / EIGHTY
    )


def test_one_row_of_a_site_moves_what_is_like_it_and_makes_it_surer():
    model = bare((2,), pooled=True)
    comm = communicator("dgx-h100", 2)
    small = Task(comm, "all_reduce", 8, ("tree", "ll"))
    large = Task(comm, "all_reduce", 2**33, ("ring", "simple"))
    before = model.predict([small, large])
    after = model.anchored([small], [2 * before.time_s[0]]).predict([small, large])
    assert 1.5 < after.time_s[0] / before.time_s[0] < 2
    assert after.time_s[1] == pytest.approx(before.time_s[1], rel=0.05)
    assert after.hi_s[0] / after.lo_s[0] < before.hi_s[0] / before.lo_s[0]


def test_every_parameter_has_an_expectation():
    for system in SYSTEMS.values():
        assert tuple(prior.name for prior in priors(system)) == PARAMETERS
    assert tuple(prior.name for prior in send_priors()) == SEND_PARAMETERS

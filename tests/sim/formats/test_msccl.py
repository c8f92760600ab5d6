"""MSCCL's XML gives correct sums in any order in an independent interpreter (`msccl_runtime`)."""

import random
import re
from dataclasses import replace

import pytest

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.sim.formats import FormatError
from ringside.sim.formats.msccl_read import loads
from ringside.sim.formats.msccl_schedule import build
from ringside.sim.formats.msccl_write import MAX_COUNT, MAX_STEPS, dumps
from ringside.sim.libraries import gloo
from ringside.sim.libraries.find import find_library
from ringside.sim.schedule import Schedule, ScheduleError, even_chunks, step
from ringside.sim.steps import Chunks
from ringside.topologies import load
from tests.sim.formats.files import DATA
from tests.sim.formats.msccl_runtime import StuckError, outcome

WAYS = [(name, kind) for name, kinds in ALGORITHMS.items() for kind in kinds if kind != "sendrecv"]
SAMPLES = ("azure_ncv4_ar_hier_12_Simple.xml", "astra_custom_ring_allreduce_8.xml")


def run(text, *, seed=0, in_place=False, slots=1):
    for got, wanted in outcome(text, random.Random(seed), in_place=in_place, slots=slots):
        assert got == wanted


def moved(plan):
    """Return every chunk's transfers, ordered only per connection."""
    every = (one for moved in plan.steps() for one in moved.transfers())
    return sorted((one.src, one.dst, chunk, one.reduce) for one in every for chunk in one.chunks)


@pytest.mark.parametrize(("algorithm", "kind"), WAYS)
def test_every_schedule_runs_to_the_right_result_and_is_read_again(algorithm, kind):
    for ranks in (1, 2, 3, 4, 5, 8):
        for nbytes in (0, 20_000 * ranks):
            plan = schedule(algorithm, Collective(kind, ranks, nbytes, itemsize=4))
            text = dumps(plan)
            run(text, seed=ranks)
            if kind != "all_to_all":
                run(text, seed=nbytes, in_place=True)
            again = build(loads(text, "x.xml"))(plan.collective)
            assert moved(again) == moved(plan)


@pytest.mark.parametrize("seed", range(30))
def test_a_file_takes_as_long_as_the_schedule_that_it_was_written_from(seed):
    chance = random.Random(seed)
    # channels are numbered anew; what is in chunks of a size of its own is in equal ones
    algorithm = chance.choice([name for name in ALGORITHMS if name not in ("double_binary_tree", "tree")])
    ranks = chance.choice((2, 3, 4, 5, 8))
    kind = chance.choice([one for one in ALGORITHMS[algorithm] if one != "sendrecv"])
    plan = schedule(algorithm, Collective(kind, ranks, chance.randrange(1, 10_000) * 4 * ranks, itemsize=4))
    text = dumps(plan)
    again = build(loads(text, "x.xml"))(plan.collective)
    if text.count(' type="s" ') > sum(plan.connections().values()):
        return  # messages are cut, and the export says so
    once, twice = (
        simulate(replace(one, after={}, credits=10**6), load(f"star:{ranks}")).time_s for one in (plan, again)
    )
    assert twice == pytest.approx(once, rel=1e-9)


@pytest.mark.parametrize("kind", [kind for kind in gloo.BUILDS if kind != "sendrecv"])
def test_gloos_schedules_run_to_the_right_result(kind):
    for ranks in (2, 3, 6):
        plan = gloo.schedule(Collective(kind, ranks, 12 * ranks, itemsize=4), "auto")
        run(dumps(plan), seed=ranks)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"])
@pytest.mark.parametrize("cluster", ["dgx-h100:1", "h100-1gpu:4"])
def test_nccls_schedules_run_to_the_right_result(kind, cluster):
    library = find_library("nccl", cluster)
    collective = Collective(kind, library.ranks, 2**16, dtype="float32")
    run(dumps(library.schedule(collective, library.choose(collective))))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sample", SAMPLES)
def test_the_samples_of_others_run_to_the_right_sums(sample, seed):
    run((DATA / sample).read_text(), seed=seed, in_place=True, slots=2)


def test_the_interpreter_notices_each_dependency_that_is_left_out():
    lines = dumps(schedule("direct", Collective("all_reduce", 3, 12, itemsize=4))).splitlines()
    # what overwrites is late enough by the schedule's own proof
    needed = [n for n, line in enumerate(lines) if re.search(r'type="(s|rrc)".* depid="\d', line)]
    assert len(needed) >= 9
    for number in needed:
        without = re.sub(r'depid="\d+" deps="\d+"', 'depid="-1" deps="-1"', lines[number])
        text = "\n".join([*lines[:number], without, *lines[number + 1 :]])
        assert any(goes_wrong(text, seed) for seed in range(100)), lines[number]


def goes_wrong(text, seed):
    try:
        run(text, seed=seed)
    except (AssertionError, StuckError):
        return True
    return False


def test_two_directions_never_wait_for_each_other_with_one_slot():
    for algorithm in ("direct", "ring", "double_binary_tree"):
        text = dumps(schedule(algorithm, Collective("all_reduce", 6, 600_000, itemsize=4)))
        for seed in range(3):
            run(text, seed=seed, slots=1)


def test_a_long_transfer_is_cut_where_the_runtime_counts_no_further():
    collective = Collective("broadcast", 2, 400)
    whole = Schedule(
        collective, "at once", even_chunks(collective, 100),
        lambda: iter([step(0, 1, 0, span=100, reduce=False)]),
    )  # fmt: skip
    text = dumps(whole)
    assert re.findall(r'type="s".*cnt="(\d+)"', text) == [str(MAX_COUNT), str(100 - MAX_COUNT)]
    run(text)


@pytest.mark.slow
def test_more_connections_than_a_channel_has_take_others():
    text = dumps(schedule("direct", Collective("all_to_all", 40, 1600)))
    assert 'nchannels="2"' in text
    run(text)


def chain(steps):
    collective = Collective("broadcast", 2, steps)
    return Schedule(
        collective, "chain", even_chunks(collective, steps),
        lambda: (step(0, 1, chunk, reduce=False) for chunk in range(steps)),
    )  # fmt: skip


def in_uneven_parts():
    plan = schedule("ring", Collective("all_gather", 2, 100))
    return replace(plan, chunks=Chunks(plan.chunks.bounds * 0 + [0, 10, 100], plan.chunks.block))


REFUSED = [
    (lambda: dumps(chain(MAX_STEPS + 1)), "more than 256 steps"),
    (lambda: dumps(schedule("direct", Collective("all_to_all", 120, 120))), "more than 216 thread blocks"),
    (lambda: dumps(schedule("direct", Collective("sendrecv", 4, 64))), "MSCCL has no sendrecv"),
    (lambda: dumps(schedule("ring", Collective("broadcast", 4, 64, root=2))), "its root is rank 2"),
    (lambda: dumps(replace(chain(4), switches=((0, 1),))), "adds in switches"),
    (lambda: dumps(in_uneven_parts()), "parts differ in size"),
    (lambda: dumps(chain(2), "LL256"), "'LL256' is not a protocol"),
    (lambda: dumps(replace(chain(4), steps=lambda: iter([]))), "lacks"),
]


@pytest.mark.parametrize(("write", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_msccl_cannot_carry_or_is_wrong_is_refused_by_name(write, message):
    with pytest.raises(ScheduleError if message == "lacks" else FormatError, match=message):
        write()


def test_a_chain_as_long_as_a_block_may_be_is_written():
    run(dumps(chain(MAX_STEPS)))


GOLDEN = """\
<algo name="ring_all_gather" proto="LL" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" \
inplace="1" outofplace="1" minBytes="0" maxBytes="0">
  <gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0">
    <tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="-1" recv="1" chan="0">
      <step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="2" send="-1" recv="-1" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
"""  # noqa: E501


def test_what_a_small_file_looks_like():
    assert dumps(schedule("ring", Collective("all_gather", 2, 64)), "LL").startswith(GOLDEN)

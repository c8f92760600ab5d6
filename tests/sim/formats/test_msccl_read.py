"""Reading MSCCL's XML: samples become proved schedules, malformed files are refused with their line."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.bounds import lower_bounds
from ringside.sim.engine.events import simulate
from ringside.sim.formats import FormatError
from ringside.sim.formats.msccl_read import loads
from ringside.sim.formats.msccl_schedule import build
from ringside.sim.formats.msccl_write import dumps
from ringside.topologies import load
from tests.sim.formats.files import DATA, complaint
from tests.sim.formats.test_msccl import moved

RING = dumps(schedule("ring", Collective("all_reduce", 3, 12, itemsize=4)))


def read(text):
    found = loads(text, "x.xml")
    return build(found)(Collective(found.kind, found.ranks, 12 * 1024, itemsize=4))


def test_the_ring_of_others_is_the_ring():
    text = (DATA / "astra_custom_ring_allreduce_8.xml").read_text()
    found = loads(text, "x.xml")
    collective = Collective("all_reduce", 8, 2**20, itemsize=4)
    plan = build(found)(collective)
    assert (found.kind, found.ranks, found.per_block) == ("all_reduce", 8, 8)
    graph = load("star:8")
    ours = simulate(schedule("ring", collective), graph, 0.0)
    assert simulate(plan, graph, 0.0).time_s == pytest.approx(ours.time_s, rel=1e-12)


def test_two_may_send_each_other_their_sums():
    found = loads((DATA / "azure_ncv4_ar_hier_12_Simple.xml").read_text(), "azure.xml")
    assert (found.kind, found.ranks, found.per_block) == ("all_reduce", 4, 24)
    assert sum(len(block.steps) for blocks in found.blocks for block in blocks.values()) == 336
    plan = build(found)(Collective("all_reduce", 4, 24 * 2**20, itemsize=4))
    assert plan.copies
    assert simulate(plan, load("star:4"), 0.0).time_s > lower_bounds(plan, load("star:4")).traffic


RELAY = """
<algo name="r" nchannels="1" nchunksperloop="1" ngpus="2" coll="allreduce" inplace="1" outofplace="1" proto="LL">
 <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="1">
  <tb id="0" send="1" recv="1" chan="0">
   <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  </tb>
 </gpu>
 <gpu id="1" i_chunks="1" o_chunks="1" s_chunks="1">
  <tb id="0" send="0" recv="0" chan="0">
   <step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="2" type="re" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="3" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  </tb>
 </gpu>
</algo>
"""  # noqa: E501


def test_what_is_kept_in_scratch_and_added_later_is_one_transfer_that_adds():
    assert moved(read(RELAY)) == [(0, 1, 0, True), (1, 0, 0, False)]


def test_fused_steps_are_read_as_what_they_do():
    fused = RELAY.replace(
        'type="r" srcbuf="i" srcoff="0" dstbuf="s"', 'type="rrcs" srcbuf="i" srcoff="0" dstbuf="o"'
    )
    lines = [line for line in fused.splitlines() if 'type="cpy"' not in line and 'type="re"' not in line]
    text = "\n".join(line for line in lines if 's="3"' not in line)
    assert moved(read(text)) == [(0, 1, 0, True), (1, 0, 0, False)]


BOMB = '<!DOCTYPE a [<!ENTITY x "xxxxxxxx"><!ENTITY y "&x;&x;&x;&x;">]>'

MALFORMED = [
    ("", "line 1: not XML: no element found"),
    (RING[:200], "not XML"),
    (RING.replace("</gpu>", "", 1), "not XML: mismatched tag"),
    (BOMB + RING, "line 1: a document type"),
    ("<a>" * 100, "line 1: more than 64 elements inside one another"),
    (RING.replace("algo", "system"), "the root is 'system', not 'algo'"),
    (RING.replace('ngpus="3"', 'ngpus="4"'), "line 1: ngpus is 4, but there is no gpu 3"),
    (RING.replace('ngpus="3"', 'ngpus="2"'), "recv is '2'; allowed: -1 to 1"),
    (RING.replace('ngpus="3"', 'ngpus="999999999999"'), "ngpus is '999999999999'; allowed: 1 to 4096"),
    (RING.replace('ngpus="3"', 'ngpus="-3"'), "ngpus is '-3'"),
    (RING.replace('ngpus="3"', ""), "algo has no ngpus"),
    (RING.replace('id="1" i_', 'id="0" i_'), "gpu 0 is defined a second time"),
    (RING.replace('coll="allreduce"', 'coll="custom"'), "coll is 'custom'; allowed: allreduce"),
    (
        RING.replace('coll="allreduce"', 'coll="alltoall"').replace('loop="3"', 'loop="4"'),
        "not a multiple of 3 GPUs",
    ),
    (RING.replace('<tb id="1"', '<tb id="0"', 1), "thread block 0 is defined a second time"),
    (RING.replace('send="1"', 'send="0"', 1), "gpu 0 sends to itself"),
    (RING.replace('send="1"', 'send="7"', 1), "send is '7'; allowed: -1 to 2"),
    (RING.replace('send="1"', 'send="-1"', 1), "s in a thread block whose send is -1"),
    (RING.replace('s="1" type', 's="2" type', 1), "s is 2, but it is step 1"),
    (RING.replace('type="rrc"', 'type="rcr"', 1), "type is 'rcr'; allowed: cpy, nop, r, rcs, re"),
    (RING.replace('srcbuf="i"', 'srcbuf="x"', 1), "srcbuf is 'x'; allowed: i, o, s"),
    (RING.replace('srcoff="0"', 'srcoff="9"', 1), "chunks 9 to 9 of i, which has 3"),
    (RING.replace('cnt="1"', 'cnt="-1"', 1), "cnt is '-1'"),
    (RING.replace('cnt="1"', 'cnt="2"', 1), "chunks are received, and"),
    (RING.replace('depid="1"', 'depid="9"', 1), "it waits for step 0 of thread block 9, which is not there"),
    (RING.replace('deps="0"', 'deps="99"', 1), "it waits for step 99"),
    (RING.replace('hasdep="1"', 'hasdep="0"'), "which has no hasdep of 1 from there on"),
    (RING.replace('chan="0"', 'chan="1"', 1), "waits here forever"),
    (RELAY.replace('type="cpy"', 'type="nop"'), "gpu 1 reads chunk 0 of o, where nothing was written"),
    (RELAY.replace('type="re"', 'type="nop"'), "at the end chunk 0 of gpu 0's output is not what"),
    (
        RELAY.replace('s="3" type="s" srcbuf="o"', 's="3" type="s" srcbuf="s"'),
        "at the end chunk 0 of gpu 0's output is not what",
    ),
    (
        RELAY.replace(
            'type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"',
            'type="cpy" srcbuf="i" srcoff="0" dstbuf="i" dstoff="1" cnt="2"',
        ).replace('i_chunks="1"', 'i_chunks="3"'),
        "it reads chunks 0 to 1 of i and writes 1 to 2 at once",
    ),
    (RING.replace('proto="Simple"', 'proto="LL256"'), "proto is 'LL256'; allowed: Simple, LL128, LL"),
    (RING.replace('maxBytes="0"', 'maxBytes="-1"'), "maxBytes is '-1'; allowed: 0 to"),
    (RELAY.replace('s="0" type="s" srcbuf="i"', 's="0" type="s" srcbuf="s"'), "where nothing was written"),
    (RELAY.replace('s="1" type="r" srcbuf="i"', 's="1" type="rrc" srcbuf="i"'), "added a second time"),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_a_malformed_file_is_refused_with_the_place(text, message):
    with pytest.raises(FormatError, match=rf"^x\.xml.*{re.escape(message)}"):
        read(text)


def test_a_cycle_of_dependencies_is_told_as_such():
    first = '<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1"'
    text = RELAY.replace(first, first.replace('depid="-1" deps="-1"', 'depid="0" deps="1"'))
    text = text.replace('hasdep="0"', 'hasdep="1"')
    with pytest.raises(FormatError, match=r"line 5: gpu 0, thread block 0 waits here forever"):
        read(text)


@settings(max_examples=80)
@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_damaged_file_is_read_or_refused(chance: random.Random, times):
    text = RING
    for _ in range(times):
        place = chance.randrange(len(text))
        match chance.randrange(4):
            case 0:
                text = text[:place]
            case 1:
                text = text[:place] + chance.choice('0123456789"-<>&i o') + text[place + 1 :]
            case 2:
                lines = text.splitlines()
                text = "\n".join(chance.sample(lines, len(lines) - 1 if lines else 0))
            case _:
                text = text[:place] + text[place + chance.randrange(40) :]
        text = text or " "
    said = complaint(lambda: read(text))
    assert not said or said.startswith("x.xml")

"""MSCCL's XML is refused exactly if two steps race, by an independent interpreter."""

import random
import re

import pytest

from ringside.sim.algorithms import ALGORITHMS as TEXTBOOK
from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.formats import FormatError
from ringside.sim.formats.msccl_read import loads
from ringside.sim.formats.msccl_schedule import build
from ringside.sim.formats.msccl_write import dumps
from tests.sim.formats.files import DATA, complaint
from tests.sim.formats.msccl_files import ALGORITHMS, made, without_a_dependency
from tests.sim.formats.msccl_runtime import StuckError, outcome

SLOTS = {"Simple": 2, "LL": 8, "LL128": 8}
EXPORTED = [(name, kind) for name, kinds in TEXTBOOK.items() for kind in kinds if kind != "sendrecv"]
RACES = sorted((DATA / "races").iterdir())


def read(text):
    return build(loads(text, "x.xml"))


def goes_wrong(text, seed, *, orders=50):
    """Return whether some order gives a wrong result, reads unwritten data, or waits forever."""
    protocol = re.search(r'proto="(\w+)"', text)[1]
    ways = [
        in_place for in_place, word in ((True, "inplace"), (False, "outofplace")) if f'{word}="1"' in text
    ]
    for order in range(orders):
        for in_place in ways:
            chance = random.Random(f"{seed} {order}")
            slots = chance.choice((1, SLOTS[protocol]))
            try:
                for got, wanted in outcome(text, chance, in_place=in_place, slots=slots):
                    if got != wanted:
                        return True
            except (AssertionError, StuckError):
                return True
    return False


def correct(number):
    """Return a correct file: of all algorithms in turn, or one written by Ringside."""
    chance = random.Random(number)
    if number % 4:
        return made(list(ALGORITHMS)[number * 3 // 4 % len(ALGORITHMS)], chance)
    algorithm, kind = EXPORTED[number // 4 % len(EXPORTED)]
    ranks = chance.choice((2, 3, 4, 6))
    return dumps(schedule(algorithm, Collective(kind, ranks, chance.choice((0, 4000)) * ranks, itemsize=4)))


@pytest.mark.parametrize("file", RACES, ids=[file.stem for file in RACES])
def test_files_of_others_without_a_dependency_are_refused_with_both_lines(file):
    text = file.read_text()
    with pytest.raises(FormatError, match=r"line \d+: step .* and, on line \d+, step .* nothing orders them"):
        read(text)
    text = text.replace('inplace="0"', 'inplace="0" outofplace="1"')
    assert goes_wrong(text, file.stem)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_correct_files_of_every_algorithm_are_read(name):
    for seed in range(6):
        text = made(name, random.Random(f"{name} {seed}"))
        assert not goes_wrong(text, seed, orders=2)
        read(text)


def judge(numbers):
    """Count files without one dependency as accepted, refused, and refused although correct."""
    accepted = refused = needless = 0
    for number in numbers:
        chance = random.Random(number)
        text = without_a_dependency(correct(number), chance)
        if text is None:
            continue
        if not (message := complaint(lambda text=text: read(text))):
            accepted += 1
            assert not goes_wrong(text, number), f"file {number} is accepted, and sums wrongly"
        elif refused < 200:
            refused += 1
            assert "nothing orders them" in message, f"file {number}: {message}"
            needless += not goes_wrong(text, number, orders=50)
        else:
            refused += 1
    return accepted, refused, needless


@pytest.mark.slow
def test_no_file_without_a_dependency_is_accepted_that_sums_wrongly():
    accepted, refused, needless = judge(range(120))
    assert accepted > 10
    assert refused > 30
    assert needless <= refused // 10  # some races take a rarer order than the interpreter tries


@pytest.mark.proof
def test_none_of_4000_files_without_a_dependency_is_accepted_that_sums_wrongly():
    accepted, refused, needless = judge(range(5200))
    assert accepted + refused >= 4000
    assert needless <= 20


def file(gpus, *, coll="allreduce", chunks=1, protocol="LL", ways=(1, 0), scratch=1):
    """Write blocks ``(send, recv, steps)``, whose steps are ``type src dst count depid deps hasdep``."""
    sizes = f'i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{scratch}"'
    lines = [
        f'<algo name="x" proto="{protocol}" nchannels="1" nchunksperloop="{chunks}" ngpus="{len(gpus)}" '
        f'coll="{coll}" inplace="{ways[0]}" outofplace="{ways[1]}">'
    ]
    for rank, blocks in enumerate(gpus):
        lines.append(f'<gpu id="{rank}" {sizes}>')
        for number, (send, recv, *steps) in enumerate(blocks):
            lines.append(f'<tb id="{number}" send="{send}" recv="{recv}" chan="0">')
            for place, words in enumerate(steps):
                kind, src, dst, count, block, last, tells = words.split()
                lines.append(
                    f'<step s="{place}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" '
                    f'dstoff="{dst[1:]}" cnt="{count}" depid="{block}" deps="{last}" hasdep="{tells}"/>'
                )
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


GIVE = (1, 1, "s i0 s0 1 -1 -1 0", "r i0 i0 1 -1 -1 0")


def sums(*blocks):
    """Return a file in which rank 0 sends its part and receives the sum; rank 1 has these blocks."""
    return file([[GIVE], blocks])


def test_a_wait_for_a_step_is_over_when_a_later_one_tells():
    takes = (-1, 0, "r s0 s0 1 -1 -1 0", "re s0 i0 1 -1 -1 1")
    read(sums(takes, (0, -1, "s i0 i0 1 0 0 0")))
    assert not goes_wrong(sums(takes, (0, -1, "s i0 i0 1 0 0 0")), 0)
    with pytest.raises(FormatError, match=r"line 14: step 0 of thread block 1 and, on line 11, step 1 of"):
        read(sums(takes, (0, -1, "s i0 i0 1 -1 -1 0")))


def test_steps_that_do_nothing_hand_on_what_they_wait_for_and_tell_nobody():
    takes = (-1, 0, "r s0 s0 1 -1 -1 1", "re s0 i0 1 -1 -1 1")
    read(sums(takes, (0, -1, "nop i-1 i-1 0 0 1 0", "s i0 i0 1 -1 -1 0")))
    with pytest.raises(FormatError, match="which has no hasdep of 1 from there on"):
        read(sums((-1, 0, *takes[2:4], "nop i-1 i-1 0 -1 -1 1"), (0, -1, "s i0 i0 1 0 2 0")))


def both_send_first(count, protocol):
    """Return a file of two ranks that send each other several messages before they receive any."""
    steps = [f"s i{n} s{n} 1 -1 -1 0" for n in range(count)] + [
        f"r s{n} s{n} 1 -1 -1 0" for n in range(count)
    ]
    steps += [f"re s{n} i{n} 1 -1 -1 0" for n in range(count)]
    return file([[(1, 1, *steps)], [(0, 0, *steps)]], chunks=count, protocol=protocol, scratch=count)


@pytest.mark.parametrize("protocol", SLOTS)
def test_no_more_messages_wait_than_a_protocol_has_slots(protocol):
    slots = SLOTS[protocol]
    read(both_send_first(slots, protocol))
    with pytest.raises(FormatError, match=f"waits here forever: {slots} messages to gpu 1 wait"):
        read(both_send_first(slots + 1, protocol))


def test_a_file_that_works_in_one_way_is_refused_where_it_claims_both():
    # rank 0 receives into its output what the next step sends from its input
    gpus = [
        [(1, 1, "s i0 o0 1 -1 -1 0", "r o0 o1 1 -1 -1 0", "cpy i0 o0 1 -1 -1 0")],
        [(0, 0, "s i0 o1 1 -1 -1 0", "r o0 o0 1 -1 -1 0", "cpy i0 o1 1 -1 -1 0")],
    ]
    kinds = {"coll": "allgather", "chunks": 2}
    read(file(gpus, ways=(1, 1), **kinds))
    swapped = [
        [(1, 1, "s i0 o0 1 -1 -1 0", "r o0 o0 1 -1 -1 0", "cpy o0 o1 1 -1 -1 0", "cpy i0 o0 1 -1 -1 0")],
        gpus[1],
    ]
    read(file(swapped, ways=(0, 1), **kinds))
    assert goes_wrong(file(swapped, ways=(1, 1), **kinds), 0)
    with pytest.raises(FormatError, match="not what all_gather promises where it is called in place"):
        read(file(swapped, ways=(1, 1), **kinds))


def ends(peer):
    return peer, peer, "s i0 s0 1 -1 -1 0", "r s0 s0 1 -1 -1 0", "re s0 i0 1 -1 -1 0"


def test_two_sums_of_one_chunk_that_no_part_has_are_refused_by_the_line():
    # rank 1 hands each of its neighbours the sum of itself and the other one
    middle = [
        (-1, 0, "r s0 s0 1 -1 -1 1"),
        (-1, 2, "r s1 s1 1 -1 -1 1"),
        (0, -1, "cpy i0 s2 1 -1 -1 1", "re s1 s2 1 1 0 0", "s s2 s2 1 -1 -1 0"),
        (2, -1, "nop i-1 i-1 0 2 0 0", "re s0 i0 1 0 0 0", "s i0 i0 1 -1 -1 0", "re s1 i0 1 1 0 0"),
    ]
    text = file([[ends(1)], middle, [ends(1)]], scratch=3)
    assert not goes_wrong(text, 0)
    with pytest.raises(
        FormatError, match=r"line \d+: gpu 1 has two copies of chunk 0, and a schedule cannot"
    ):
        read(text)


def test_what_only_a_depid_keeps_from_being_overwritten_is_told_as_no_schedules():
    # rank 0 sends its part twice, and the result comes back when one of the two has left
    gpus = [
        [(1, -1, "s i0 s0 1 -1 -1 1"), (2, 2, "s i0 s1 1 -1 -1 0", "r i0 i0 1 0 0 0")],
        [
            (2, 0, "cpy i0 s0 1 -1 -1 0", "rrc i0 i0 1 -1 -1 1", "s s0 s0 1 -1 -1 0"),
            (-1, 2, "r s1 s1 1 -1 -1 0", "re s1 i0 1 0 1 0"),
        ],
        [
            (1, 1, "s i0 s1 1 -1 -1 0", "r s0 s0 1 -1 -1 1"),
            (0, 0, "r s1 s1 1 -1 -1 0", "re s0 i0 1 0 1 0", "re s1 i0 1 -1 -1 0", "s i0 i0 1 -1 -1 0"),
        ],
    ]
    text = file(gpus, scratch=2)
    assert not goes_wrong(text, 0)
    with pytest.raises(FormatError, match="correct with depid, but not as a schedule, which has no depid: "):
        read(text)

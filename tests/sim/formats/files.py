"""Sample files, and random programs."""

from pathlib import Path

from hypothesis import strategies as st

from ringside.sim.formats import FormatError
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.record.distributed import record

DATA = Path(__file__).parent / "data"

ROOTS = {"broadcast": {"src": 1}, "reduce": {"dst": 1}, "gather": {"dst": 1}, "scatter": {"src": 1}}
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", *ROOTS)


def complaint(do):
    """Return the error message of a refusal, or an empty text."""
    try:
        do()
    except FormatError as error:
        return str(error)
    return ""


def makespan(program, library="ideal"):
    libraries = Libraries(library, f"star:{program.ranks}", {}, program.ranks)
    (timeline,) = simulate([PlacedProgram(program, tuple(range(program.ranks)))], libraries)
    return timeline.makespan_s


def anybody(dist):
    """Let rank 0 receive from any source."""
    dist.send(8, 0) if dist.get_rank() else dist.recv(8)


events = st.one_of(
    st.tuples(st.just("compute"), st.integers(0, 3), st.integers(0, 5000)),
    st.tuples(st.just("call"), st.sampled_from(KINDS), st.booleans(), st.integers(0, 2), st.integers(0, 9)),
    st.tuples(
        st.just("message"),
        st.permutations(range(4)),
        st.integers(0, 10_000),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
)


@st.composite
def programs(draw, *, library="gloo", asynchronous=True, messages=True, calls=True, least=0):
    """Draw a job of four ranks that ends: asynchronous calls are waited for at the end.

    Messages, and the parts of collectives, have ``least`` bytes or more.
    """
    script = draw(st.lists(events, max_size=12))
    left_out = {kind for kind, wanted in (("message", messages), ("call", calls)) if not wanted}
    script = [event for event in script if event[0] not in left_out]

    def main(dist):
        groups = [None, dist.new_group([0, 1, 2, 3]), dist.new_group([1, 3])]
        rank, works = dist.get_rank(), []
        for kind, *event in script:
            if kind == "compute" and event[0] == rank:
                dist.compute(event[1] * 1e-6)
            elif kind == "call":
                name, is_async, group, size = event
                if group < 2 or rank in (1, 3):
                    work = getattr(dist, name)(
                        16 * least + size * 64,
                        group=groups[group],
                        async_op=is_async and asynchronous,
                        **ROOTS.get(name, {}),
                    )
                    works += [work] if work else []
            elif kind == "message":
                (src, dst, *_), size, tag, group = event
                if rank in (src, dst) and (group < 2 or {src, dst} == {1, 3}):
                    ask, peer = (dist.isend, dst) if rank == src else (dist.irecv, src)
                    works.append(ask(least + size, peer, groups[group], tag))
        for work in works:
            work.wait()

    return record(main, 4, library)

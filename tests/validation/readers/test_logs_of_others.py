"""Tables quoted in READMEs and issues, and the JSON of other tools."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ringside.sim.collective import KINDS
from ringside.sim.record import RecordError
from ringside.validation.readers import Reading, read

SIZES = (8, 1024, 2**20, 2**26, 2**30)


def table(kind: str, ranks: int, columns: str = "size count type redop root", hashes: bool = False) -> str:
    """Return nccl-tests' output for a collective of 20 us and 250 GB/s, without comment signs."""
    rows = []
    for size in SIZES:
        time = 20 + size / 250e3
        algbw = size / time / 1e3
        half = f"{time:.2f} {algbw:.2f} {algbw * KINDS[kind].busbw_factor(ranks):.2f} 0"
        redop = "sum" if KINDS[kind].reduces else "none"
        rows.append(f"  {size}  {size // 4}  float  {redop}  -1  {half}  {half}")
    mark = "# " if hashes else "  "
    head = f"{mark}{columns} time algbw busbw #wrong time algbw busbw #wrong"
    units = f"{mark}(B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)"
    return "\n".join([head, units, *rows, f"{mark}Avg bus bandwidth    : 101.3", ""])


def of(tmp_path: Path, text: str, name: str = "quoted.md") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("ranks", [2, 3, 8, 16, 32, 64])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
def test_bandwidths_tell_the_ranks_that_no_line_lists(kind: str, ranks: int, tmp_path: Path) -> None:
    program = f"$ ./build/{kind}_perf -b 8 -e 1G\n"
    found = read(of(tmp_path, program + table(kind, ranks))).records
    assert [record.nbytes for record in found] == list(SIZES)
    assert {(r.collective, r.ranks, r.num_nodes, r.cluster) for r in found} == {(kind, ranks, 0, "")}


def test_a_bare_table_tells_its_collective_too(tmp_path: Path) -> None:
    found = read(of(tmp_path, table("all_reduce", 16))).records
    assert {(r.collective, r.ranks) for r in found} == {("all_reduce", 16)}


def test_all_ranks_in_one_process_are_on_one_node(tmp_path: Path) -> None:
    commands = "mpirun -np 1 all_reduce_perf -b 8 -e 1G -g 8\n", "nThread 1 nGpus 8 minBytes 8\n"
    for command in commands:
        record = read(of(tmp_path, command + table("all_reduce", 8))).records[0]
        assert (record.ranks, record.num_nodes) == (8, 1)
    record = read(of(tmp_path, commands[1] + table("all_reduce", 32))).records[0]
    assert (record.ranks, record.num_nodes) == (32, 0)


def test_gpus_of_a_process_count_where_bandwidths_tell_nothing(tmp_path: Path) -> None:
    path = of(tmp_path, "sendrecv_perf -b 8 -e 1G -g 4\n" + table("sendrecv", 4))
    assert (read(path).records[0].ranks, read(path).records[0].num_nodes) == (4, 1)
    bare = of(tmp_path, "sendrecv_perf -b 8 -e 1G\n" + table("sendrecv", 4))
    with pytest.raises(RecordError, match="bandwidths of sendrecv do not depend on their number"):
        read(bare)


def test_ranks_between_which_no_digit_decides_are_refused_with_their_range(tmp_path: Path) -> None:
    text = table("all_reduce", 2048)
    with pytest.raises(RecordError, match=r"bandwidths fit \d+ to \d+ ranks; write a line '# nThread"):
        read(of(tmp_path, "all_reduce_perf\n" + text))


def test_rank_lines_without_their_sign_are_read(tmp_path: Path) -> None:
    lines = "".join(
        f"Rank {r} Group 0 Pid 7 on box{r // 2} device {r % 2} [0000:0{r}:00] NVIDIA H200\n" for r in range(4)
    )
    record = read(of(tmp_path, "all_reduce_perf\n" + lines + table("all_reduce", 4))).records[0]
    assert (record.ranks, record.num_nodes, record.cluster) == (4, 2, "NVIDIA H200")


def test_the_first_tables_gave_milliseconds_under_other_names(tmp_path: Path) -> None:
    text = """\
# nThread 1 nGpus 2 minBytes 4 maxBytes 67108864 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
# NCCL Tests compiled with NCCL 2.4
# Using devices
#   Rank  0 on       box device  0 [0x05] Tesla V100-SXM2-16GB
#   Rank  1 on       box device  1 [0x06] Tesla V100-SXM2-16GB

#                                                 out-of-place                    in-place
#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
           0             0   float     sum    0.009   0.00   0.00       N/A    0.010   0.00   0.00      N/A
     1048576        262144   float     sum    0.058  18.08  18.08     0e+00    0.057  18.40  18.40    0e+00
    67108864      16777216   float     sum    1.512  44.38  44.38     0e+00    1.510  44.44  44.44    0e+00
"""
    reading = read(of(tmp_path, text, "log"))
    assert [(r.nbytes, round(r.time_s * 1e6)) for r in reading.records] == [(1048576, 58), (67108864, 1512)]
    record = reading.records[0]
    assert (record.collective, record.ranks, record.redop, reading.skipped) == ("all_reduce", 2, "sum", 1)


RCCL = {
    "numCycle": 0, "name": "AllReduce", "nodes": 2, "ranks": 16, "ranksPerNode": 8, "gpusPerRank": 1,
    "size": 1048576, "type": "float", "redop": "sum", "inPlace": 0, "time": 41.5, "algBw": 25.266892,
    "busBw": 47.375422, "wrong": "0",
}  # fmt: skip


@pytest.mark.parametrize("lines", [True, False])
def test_rccl_tests_rows_in_lines_or_in_an_array(lines: bool, tmp_path: Path) -> None:
    rows = [RCCL, RCCL | {"inPlace": 1, "time": 39.0}, RCCL | {"size": 8, "inPlace": 1, "time": 12.0}]
    text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows, indent=1)
    found = read(of(tmp_path, text, "rccl.json")).records
    assert [(r.nbytes, r.time_s, r.in_place) for r in found] == [(1048576, 41.5e-6, False), (8, 12e-6, True)]
    assert {(r.library, r.collective, r.ranks, r.num_nodes) for r in found} == {("rccl", "all_reduce", 16, 2)}


def test_rccl_tests_rows_that_say_no_ranks_are_refused(tmp_path: Path) -> None:
    old = {key: value for key, value in RCCL.items() if key not in ("nodes", "ranks")}
    with pytest.raises(RecordError, match=r"line 1: nodes: Field required.*ranks: Field required"):
        read(of(tmp_path, json.dumps(old) + "\n" + json.dumps(old), "rccl.json"))


def operation(coll: str, number: int, rank: int, time_us: int) -> dict[str, object]:
    header = {"id": "0x9e7a", "rank": rank, "n_ranks": 4, "nnodes": 2}
    done = {
        "coll": coll, "coll_sn": number, "coll_msg_size_bytes": 65536, "coll_exec_time_us": time_us,
        "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.0,
    }  # fmt: skip
    return {"header": header, "metadata": {"hostname": "box"}, "coll_perf": done}


def test_inspectors_record_is_the_median_of_the_slowest_rank(tmp_path: Path) -> None:
    operations = [
        operation("AllReduce", number, rank, 100 + 10 * number + rank)
        for number in range(5)
        for rank in (0, 3)
    ]
    operations += [operation("ReduceScatter", 5, 0, 50), operation("AllReduce", 6, 0, 0)]
    text = "\n".join(map(json.dumps, operations)) + "\n"
    reading = read(of(tmp_path, text, "box-pid7.log"))
    reduced, scattered = reading.records
    assert (reduced.collective, reduced.iterations) == ("all_reduce", 5)
    assert (reduced.ranks, reduced.num_nodes) == (4, 2)
    assert (reduced.time_s, reduced.min_s, reduced.max_s) == (123e-6, 103e-6, 143e-6)
    assert (scattered.collective, scattered.nbytes) == ("reduce_scatter", 4 * 65536)
    assert (reduced.fingerprint, reading.skipped) == ({"timing_source": "kernel_gpu"}, 1)


def test_an_inspector_file_cut_off_is_refused_with_its_line(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(operation("AllReduce", n, 0, 100)) for n in range(3))
    with pytest.raises(RecordError, match="line 3: broken or cut off JSON"):
        read(of(tmp_path, text[:-9], "box.log"))


def test_the_iterations_of_all_processes_do_not_disturb(tmp_path: Path) -> None:
    output = json.loads((Path(__file__).parents[1] / "data" / "v3.json").read_text())
    output["version"] = 2
    for result in output["results"]:
        if "out_of_place_per_iter" in result:
            result["out_of_place_per_iter"]["per_process_max_times_us"] = [[35.5, 36.0], [35.4, 36.1]]
    record = read(of(tmp_path, json.dumps(output), "out.json")).records[0]
    assert (round(record.min_s * 1e6, 2), round(record.p95_s * 1e6, 2)) == (35.5, 41.5)


def listing(ranks: Sequence[int], machine: int = 8) -> str:
    """Return nccl-tests' lines of these ranks, with ``each`` per host."""
    return "".join(
        f"#  Rank {rank:2} Group  0 Pid {100 + rank} on host{rank // machine} device  {rank % machine} "
        f"[0000:{rank % machine:02}:00] NVIDIA H100\n"
        for rank in ranks
    )


def taken_or_refused(path: Path, complaint: str) -> Reading | None:
    """Return the file's records, None if it is refused for this reason."""
    try:
        return read(path)
    except RecordError as error:
        told = str(error)
    assert complaint in told
    return None


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_list_that_was_cut_makes_a_run_no_smaller(kind: str, named: bool, tmp_path: Path) -> None:
    """Of any part of the list the ranks, nodes and collective are those of the whole, or it is refused."""
    random = np.random.default_rng(len(kind))
    taken = 0
    for _ in range(60):
        nodes = int(random.integers(1, 9))
        ranks = 8 * nodes
        whole = range(ranks)
        few = int(random.integers(1, ranks // 2))  # more in a row could be all, as far as bandwidths tell
        part = random.choice([0, 1, 2])
        kept = [whole[:few], whole[-few:], sorted(random.permutation(ranks)[:few].tolist())][part]
        inits = f"host0:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks {ranks} cudaDev 0\n"
        head = listing(kept) + (inits if named else "") + f"# Collective test starting: {kind}_perf\n"
        path = of(tmp_path, head + table(kind, ranks, hashes=True), "cut.txt")
        reading = taken_or_refused(path, "the list is truncated; list all")
        if reading is None:
            assert not named
            continue
        taken += 1
        assert {(one.collective, one.ranks) for one in reading.records} == {(kind, ranks)}
        assert {one.num_nodes for one in reading.records} <= {0, nodes}
        assert {one.fingerprint["ranks_listed"] for one in reading.records} == {str(len(kept))}
        assert reading.notes[0].endswith(f": {len(kept)} of {ranks} ranks are listed")
    assert taken > 20


def test_a_whole_list_says_nothing_of_itself(tmp_path: Path) -> None:
    reading = read(of(tmp_path, listing(range(16)) + "all_reduce_perf\n" + table("all_reduce", 16), "a.txt"))
    assert {(one.ranks, one.num_nodes) for one in reading.records} == {(16, 2)}
    assert not reading.notes
    assert "ranks_listed" not in reading.records[0].fingerprint


def test_bandwidths_that_tell_no_ranks_leave_those_that_are_listed(tmp_path: Path) -> None:
    reading = read(of(tmp_path, listing(range(4)) + "broadcast_perf\n" + table("broadcast", 16), "b.txt"))
    assert {(one.ranks, one.num_nodes) for one in reading.records} == {(4, 1)}

import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside.sim.record import RecordError
from ringside.validation.pairs import PairsVerdict, judge
from ringside.validation.readers.pairs import Pair, read_pairs

DATA = Path(__file__).parent


def cluster(
    nodes: int,
    seed: int,
    *,
    noise: float = 0.006,
    sizes: int = 1,
    gpus: int = 1,
    slow: dict[int, float] | None = None,
    link: dict[tuple[int, int], float] | None = None,
    dropped: float = 0.0,
) -> list[Pair]:
    """Return every pair of a made-up cluster; the slower node of a pair sets its time."""
    random = np.random.default_rng(seed)
    own = random.normal(0, noise / 2, nodes)
    pairs = []
    for i in range(nodes):
        for j in range(i + 1, nodes):
            if random.random() < dropped:
                continue
            slower = max((slow or {}).get(i, 1), (slow or {}).get(j, 1)) * (link or {}).get((i, j), 1)
            names = f"n{i:02}", f"n{j:02}"
            for size in range(sizes):
                seconds = 1e-3 * 2**size * slower * np.exp(own[i] + own[j] + noise * random.normal())
                pairs.append(Pair(names, "sendrecv", gpus, 2 ** (20 + size), float(seconds)))
    return pairs


def nodes_of(verdict: PairsVerdict) -> set[str]:
    return {node.node for node in verdict.nodes}


def pairs_of(verdict: PairsVerdict) -> set[tuple[str, str]]:
    return {pair.nodes for pair in verdict.pairs}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    with tarfile.open(DATA / "pairs" / "cluster17_N2_G1.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_a_real_cluster_of_17_has_no_slow_node_and_eight_slow_pairs(logs: Path) -> None:
    pairs = read_pairs([logs])
    verdict = judge(pairs.measured)
    assert verdict.nodes == ()
    assert {"-".join(node[-2:] for node in nodes) for nodes in pairs_of(verdict)} == set(
        "01-04 02-03 02-06 04-06 04-09 11-12 13-16 13-17".split()
    )
    assert all(pair.factor > 1.8 and pair.sizes == pair.of == 10 for pair in verdict.pairs)
    assert [(m.collective, m.pairs, m.missing) for m in verdict.matrices[::10]] == [
        ("all_to_all", 134, 2),
        ("sendrecv", 131, 5),
    ]
    assert len(pairs.failed) == 4


@pytest.mark.parametrize("nodes", [5, 6, 9, 17])
def test_noise_alone_names_nobody(nodes: int) -> None:
    for seed in range(40):
        verdict = judge(cluster(nodes, seed, noise=0.002 * (1 + seed % 20)))
        assert (verdict.nodes, verdict.pairs) == ((), ())


@pytest.mark.parametrize(("nodes", "factor"), [(6, 1.3), (9, 1.15), (17, 1.1), (17, 3.0)])
def test_one_slow_node_is_named_and_none_of_its_pairs(nodes: int, factor: float) -> None:
    for seed in range(10):
        verdict = judge(cluster(nodes, seed, slow={2: factor}, sizes=2))
        assert (nodes_of(verdict), verdict.pairs) == ({"n02"}, ())
        assert verdict.nodes[0].factor == pytest.approx(factor, rel=0.03)
        assert (verdict.nodes[0].matrices, verdict.nodes[0].of) == (2, 2)


def test_a_node_is_named_where_only_one_number_of_gpus_shows_it() -> None:
    verdict = judge([*cluster(17, 1), *cluster(17, 2, gpus=4), *cluster(17, 3, gpus=8, slow={11: 1.2})])
    (node,) = verdict.nodes
    assert (node.node, node.worst.gpus_per_node, node.matrices, node.of) == ("n11", 8, 1, 3)


@pytest.mark.parametrize("factor", [1.15, 8.0])
def test_one_slow_link_is_named_and_neither_of_its_nodes(factor: float) -> None:
    for seed in range(10):
        verdict = judge(cluster(9, seed, link={(3, 7): factor}, sizes=3))
        assert (verdict.nodes, pairs_of(verdict)) == ((), {("n03", "n07")})
        assert verdict.pairs[0].factor == pytest.approx(factor, rel=0.05)


def test_two_slow_nodes_are_both_named() -> None:
    for seed in range(10):
        verdict = judge(cluster(17, seed, slow={0: 1.4, 8: 1.15}))
        assert (nodes_of(verdict), verdict.pairs) == ({"n00", "n08"}, ())
        assert [node.node for node in verdict.nodes] == ["n00", "n08"]


def test_missing_pairs_hide_neither_node_nor_link() -> None:
    for seed in range(10):
        pairs = cluster(17, seed, slow={5: 1.3}, link={(1, 2): 1.5}, dropped=0.3)
        verdict = judge(pairs)
        measured = {pair.nodes for pair in pairs}
        assert nodes_of(verdict) == {"n05"}
        assert pairs_of(verdict) == {("n01", "n02")} & measured


def test_a_hiccup_at_one_size_of_many_is_no_slow_link() -> None:
    pairs = cluster(9, 0, sizes=5)
    assert judge([replace(pairs[0], time_s=3 * pairs[0].time_s), *pairs[1:]]).pairs == ()
    assert judge([replace(p, time_s=3 * p.time_s) if p.nodes == pairs[0].nodes else p for p in pairs]).pairs


def test_nodes_that_cannot_be_told_from_their_links_are_said() -> None:
    everyone = cluster(9, 0, slow={8: 2.0})
    with_two_partners = [p for p in everyone if "n08" not in p.nodes or p.nodes[0] in ("n00", "n01")]
    verdict = judge(with_two_partners)
    assert (verdict.nodes, verdict.indistinct) == ((), ("n08",))
    between_two_halves = [p for p in everyone if (p.nodes[0] < "n04") != (p.nodes[1] < "n04")]
    assert len(judge(between_two_halves).indistinct) == 9


def test_two_clusters_in_one_call_are_two_matrices() -> None:
    far = [replace(p, nodes=(f"x{p.nodes[0]}", f"x{p.nodes[1]}"), time_s=5 * p.time_s) for p in cluster(6, 1)]
    verdict = judge([*cluster(6, 0), *far])
    assert [len(matrix.nodes) for matrix in verdict.matrices] == [6, 6]
    assert verdict.nodes == verdict.pairs == ()


def test_a_table_gives_times_or_bandwidths(tmp_path: Path) -> None:
    times, rates = tmp_path / "times.csv", tmp_path / "rates.csv"
    times.write_text("node_a, node_b, size_bytes, time_us, gpus_per_node\nb, a, 1000000, 40, 8\n")
    rates.write_text("node_a,node_b,size_bytes,bandwidth_GBps,collective\na,b,1000000,25,alltoall\n")
    assert read_pairs([times]).measured == (Pair(("a", "b"), "sendrecv", 8, 1000000, 40e-6),)
    assert read_pairs([rates]).measured == (Pair(("a", "b"), "all_to_all", 1, 1000000, 40e-6),)


def test_a_log_without_rank_lines_is_named_by_its_file(tmp_path: Path, logs: Path) -> None:
    log = next(logs.glob("*012_cnode2-013.log"))
    bare = tmp_path / "nccl_N2_G1_left-1_right-2.log"
    bare.write_text("\n".join(line for line in log.read_text().splitlines() if "Rank" not in line))
    found, expected = read_pairs([bare]).measured, read_pairs([log]).measured
    assert [(p.nodes, p.time_s) for p in found] == [(("left-1", "right-2"), p.time_s) for p in expected]
    assert found[0].gpus_per_node == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "node_a,node_b,size_bytes\na,b,1\n", "one of time_us and bandwidth_GBps"),
        ("a.csv", "node_a,node_b,size_bytes,time_us\na,a,1,1\n", "two different names"),
        ("a.csv", "node_a,node_b,size_bytes,time_us\na,b,1,0\n", "expected more than 0"),
        ("a.csv", "node_a,node_b,size_bytes,time_us\na,b,x,1\n", "line 2: invalid literal"),
        ("a.csv", "node_a,node_b,size_bytes,time_us\na,b\n", "line 2"),
        ("a.log", "nothing here\n", "no table of measurements"),
    ],
)
def test_what_is_no_pair_is_refused(written: Any, name: str, text: str, message: str) -> None:
    path = written(text, name)
    with pytest.raises(RecordError, match=message):
        read_pairs([path])


def test_a_run_on_one_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="a run on 1 nodes; expected two"):
        read_pairs([DATA / "data" / "v2.0_all_reduce.log"])
    with pytest.raises(RecordError, match="no file with the ending"):
        read_pairs([tmp_path])


def test_a_run_that_crashed_is_evidence_and_refuses_no_folder(tmp_path: Path, logs: Path) -> None:
    random = np.random.default_rng(27)
    whole = sorted(logs.glob("*.log"))
    expected = {file: read_pairs([file]).measured for file in whole[:4]}
    for _ in range(40):
        cut = whole[int(random.integers(4))]
        content = cut.read_bytes()
        for file in whole[:4]:
            (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / cut.name).write_bytes(content[: int(random.integers(len(content)))])
        found = read_pairs([tmp_path])
        others = [pair for file in whole[:4] if file != cut for pair in expected[file]]
        assert set(others) <= set(found.measured) <= {*others, *expected[cut]}
        # whole as far as it goes, or told by both of its nodes
        nodes = tuple(cut.stem.split("_")[-2:])
        assert len(found.measured) > len(others) or (nodes, str(tmp_path / cut.name)) in found.failed


def test_a_crashed_run_of_unknown_nodes_is_told_by_its_file(written: Any, logs: Path) -> None:
    crashed = written("srun: error: Unable to allocate resources\n", "slurm.out")
    found = read_pairs([*sorted(logs.glob("*.log"))[:1], crashed])
    assert found.measured
    assert found.failed[-1] == ((), str(crashed))

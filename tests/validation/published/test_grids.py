"""The commands that make rates from tables of others, and what waves say of each GPU without its own grid."""

import json
from itertools import product

import pytest

from ringside.sim.compute import waves
from ringside.sim.compute.grids import read_rates
from ringside.sim.compute.prices import ACCUMULATED
from ringside.validation.published import grids, simumax
from ringside.validation.published.waves import law, left_out, own_shares

SYSTEM = grids.MeasuredSystem("tiny", ("one/1.0", "other/2.0"))


def milliseconds(m, n, k, tflops):
    return 2 * m * n * k / (tflops * 1e9)


@pytest.fixture
def tables(tmp_path):
    """Write tables of two runtimes: the second is faster but at small sizes, and lacks the largest ones."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def write(name, rows, columns):
        values = {column: [row[place] for row in rows] for place, column in enumerate(columns)}
        parquet.write_table(pyarrow.table(values), tmp_path / name)

    sizes = [*product((64, 128, 256, 1000), (64, 128, 256), (128, 256))]
    first = [("bfloat16", *one, milliseconds(*one, 100)) for one in sizes if one[0] < 1000 or one[1] < 256]
    second = [
        ("bfloat16", *one, milliseconds(*one, 10 if one[0] == 128 else 200)) for one in sizes if one[0] < 1000
    ]
    write("tiny_gemm_one_1.0_gemm_perf.parquet", first, grids.GEMM)
    (tmp_path / "tiny/gemm/other/2.0").mkdir(parents=True)
    write("tiny/gemm/other/2.0/gemm_perf.parquet", second, grids.GEMM)
    rows = [
        (batch, heads, 1024, 128, milliseconds(batch * heads * 1024, 1024, 128, rate), *others)
        for batch, heads, rate, others in (
            (1, 4, 90, ("bfloat16", "bfloat16", 0, 0)),
            (2, 2, 110, ("bfloat16", "bfloat16", 0, 0)),
            (1, 4, 900, ("fp8", "bfloat16", 0, 0)),
            (1, 4, 900, ("bfloat16", "bfloat16", 128, 0)),
        )
    ]
    write("tiny_attention_one_1.0_context_attention_perf.parquet", rows, grids.ATTENTION)
    return tmp_path


def test_a_grid_is_the_faster_of_its_runtimes(tables):
    (table,) = grids.products(tables, SYSTEM).values()
    assert {n for _, n, _ in table} == {128, 256}
    axes = grids.kept(table, (128, 256, 1000), range(128, 1000), range(128, 1000))
    assert grids.text(("m", "n"), {"bf16": (table, axes)}).splitlines() == [
        "precision,m,n,128,256",
        "bf16,128,128,100,100",
        "bf16,128,256,100,100",
        "bf16,256,128,200,200",
        "bf16,256,256,200,200",
        "bf16,1000,128,100,100",
        "bf16,1000,256,200,200",  # was not measured
    ]


def test_attention_is_causal_in_16_bits_without_a_window(tables):
    assert grids.attention(tables, SYSTEM) == {(4, 1024, 128): pytest.approx(100e12)}


def test_a_folder_without_tables_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=r"has no tiny/gemm/one/1\.0/gemm_perf\.parquet; write the folder"):
        grids.products(tmp_path, SYSTEM)


def test_waves_predict_each_gpu_by_the_shares_of_the_others():
    own = own_shares()
    assert len(own) == 23
    slow, limit, block = law(own)
    assert (
        pytest.approx(slow, abs=0.006), pytest.approx(limit, abs=1e12), pytest.approx(block, abs=0.005)
    ) == (waves.SLOW_SHARE, waves.LIMIT, waves.BLOCK_SHARE)  # fmt: skip
    errors = {one.case: one.error for one in left_out(own)}
    assert max(errors.values()) < 0.16
    assert max(error for (_, precision), error in errors.items() if precision == "bf16") < 0.11


CASE = "b=1, m={}, k={}, n={}, layout={}, accumulate={}, out_dtype=bf16"
GROUP = "ng=40, M=616, N=3072, K=5120, dtype=bf16, stage={}, accumulate={}, single_output=True"
SDP = (
    "batch=2, seq_len=4096, head_num=16, kv_head_num=4, qk_head_dim=192, v_head_dim=128, qkv_contiguous=True"
)
MACHINE = {
    "sys_name": "mine",
    "accelerator": {
        "op": {
            "matmul": {
                "tflops": 300,
                "accurate_efficient_factor": {
                    CASE.format(4096, 8192, 8192, "TN", False): 0.7,
                    CASE.format(4096, 8192, 8192, "NN", False): 0.8,
                    CASE.format(8192, 4096, 1024, "NT", True): 0.6,
                },
            },
            "fp8_matmul": {"tflops": 600, "accurate_efficient_factor": {}},
            "group_matmul": {
                "tflops": 300,
                "accurate_efficient_factor": {
                    GROUP.format("fwd", False): 0.5, GROUP.format("bwd_grad_act", False): 0.4,
                    GROUP.format("bwd_grad_w", True): 0.3,
                },
            },
            "sdp_fwd": {"tflops": 300, "accurate_efficient_factor": {SDP: 1.0}},
        },
        "bandwidth": {"default": {"gbps": 2000, "efficient_factor": 0.9, "latency_us": 30}},
    },
}  # fmt: skip


def test_a_system_file_of_simumax_becomes_rates(written, tmp_path):
    simumax.main([str(written(json.dumps(MACHINE), "system.json")), str(tmp_path / "rates.json")])
    rates = read_rates(tmp_path / "rates.json")
    assert (rates.device, list(rates.products), rates.streaming) == ("mine", ["bf16"], 1.8e12)
    assert rates.launch_s == pytest.approx(30e-6)
    plain = rates.products["bf16"].flops_per_s
    assert plain(4096, 8192, 8192) == pytest.approx(0.75 * 300e12)
    assert plain(8192, 1024, 4096) == pytest.approx(0.6 * 300e12 / ACCUMULATED)
    grouped = rates.grouped["bf16"].flops_per_s
    assert grouped(40, 616, 3072, 5120) == pytest.approx(150e12)
    assert grouped(40, 616, 5120, 3072) == pytest.approx(120e12)
    assert grouped(40, 3072, 5120, 616) == pytest.approx(90e12 / ACCUMULATED)
    assert rates.attention.flops_per_s(32, 4096, 160) == pytest.approx(150e12)


@pytest.mark.parametrize("text", ["{}", "[]", "m,n,k", json.dumps({"accelerator": {"op": {}}})])
def test_another_file_is_no_system_file(written, text):
    with pytest.raises(ValueError, match="no system file of SimuMax"):
        simumax.converted(written(text))
    with pytest.raises(SystemExit, match="no system file of SimuMax"):
        simumax.main([str(written(text)), "rates.json"])

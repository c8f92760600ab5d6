"""Rates of this machine's CPU, really measured with tiny sizes."""

import json
from pathlib import Path

import pytest

from ringside.real.questions.compute_measurement import ComputeMeasurement
from ringside.sim.compute.grids import read_rates
from tests.pages.console import ROOT

torch = pytest.importorskip("torch")

TINY = "--device cpu --size 32,64 --sequence 64 --stream 64K --seconds 0.001"


@pytest.mark.slow
def test_a_cpu_is_measured_and_its_file_read(json_of, tmp_path):
    answer = json_of(f"measure compute {TINY} --precision fp32,bf16 -o {tmp_path}/rates.json")
    assert answer["schema"] == "ringside.measure_compute/1"
    kinds = [row["kind"] for row in answer["rows"]]
    assert kinds == ["products"] * 16 + ["attention"] * 4 + ["streaming"]
    assert all(row["rate"] > 0 for row in answer["rows"])
    rates = read_rates(tmp_path / "rates.json")
    assert sorted(rates.products) == ["bf16", "fp32"]
    row = next(row for row in answer["rows"] if row["sizes"] == [64, 32, 64])
    assert rates.products["fp32"].flops_per_s(64, 32, 64) == pytest.approx(row["rate"])
    assert rates.attention.flops_per_s(8, 64, 64) > 0
    assert rates.streaming == answer["rows"][-1]["rate"]


@pytest.mark.slow
def test_an_interrupted_measurement_keeps_what_it_has(tmp_path):
    path = tmp_path / "rates.json"

    def stop(rates, point):
        path.write_text(rates.dumps(), encoding="utf-8")
        if point.sizes == (16, 32, 16):
            raise KeyboardInterrupt

    question = ComputeMeasurement(device="cpu", size=(16, 32), stream=2**16, seconds=0.001)
    with pytest.raises(KeyboardInterrupt):
        question.ask(on_rates=stop)
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert [point[:3] for point in kept["products"]["fp32"]] == [[16, 16, 16], [16, 16, 32], [16, 32, 16]]
    assert read_rates(path).streaming is None


@pytest.mark.gpu
@pytest.mark.slow
def test_a_gpu_is_measured(json_of, tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    answer = json_of(
        f"measure compute --device cuda --size 256,2048 --sequence 1024 --seconds 0.01 -o {tmp_path}/r.json"
    )
    assert answer["inputs"]["device"] == "cuda"
    assert set(read_rates(tmp_path / "r.json").products) == {"bf16"}


def test_a_missing_gpu_is_said(refused, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = refused("measure compute --device cuda -o rates.json")
    assert "--device cuda, but PyTorch finds no CUDA GPU here; write cpu" in message


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--device gpu", "--device 'gpu'; write cpu or cuda"),
        ("--precision fp8", "--precision 'fp8'; write some of fp32, tf32, bf16, fp16"),
        ("--size 65536", "--size 65536; write 32768 or less"),
        ("--size x", "'x' are not"),
        ("--seconds 0", "--seconds 0.0; write more than 0, and 60 or less"),
        ("--stream 64GiB --device cpu", "three tensors of 64 GiB need more than"),
    ],
)
def test_what_cannot_be_measured_is_refused(refused, options, says):
    assert says in " ".join(refused(f"measure compute {options} -o rates.json").split())


def test_another_file_is_not_overwritten(refused, tmp_path):
    (tmp_path / "thesis.json").write_text("{}", encoding="utf-8")
    message = refused(f"measure compute -o {tmp_path}/thesis.json")
    assert "thesis.json contains no such rates; write another name after -o" in message


def test_the_rates_measured_here_are_read():
    (path,) = Path(ROOT, "validation/published/compute").glob("*.json")
    rates = read_rates(path)
    assert rates.device == "AMD EPYC"
    assert 1e9 < rates.products["fp32"].flops_per_s(2048, 2048, 2048) < 1e12
    assert 1e9 < rates.streaming < 1e12

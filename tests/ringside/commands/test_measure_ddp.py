import json
from pathlib import Path

import pytest

from ringside.commands.compare import ddp as compare_ddp
from ringside.sim.training.ddp.simulate import predict
from ringside.sim.training.ddp.step import read
from ringside.validation.questions.ddp_measurement import DdpMeasurement
from tests.tiers import slow_or_proof

EXAMPLES = Path(__file__).parents[3] / "examples" / "models.py"
WORKLOAD = """
name: two
parameters: {a: {count: 1024}, b: {count: 1024}}
layers:
  - {name: two, forward: 1ms, backward: 2ms, gradients: [b]}
  - {name: one, forward: 1ms, backward: 2ms, gradients: [a]}
"""


@pytest.mark.slow
@pytest.mark.gloo
def test_measured_steps_are_printed_written_traced_drawn_and_compared(ringside, refused, tmp_path, capsys):
    model, output, trace, plot = (tmp_path / name for name in ("m.yaml", "o.json", "t.json", "p.svg"))
    model.write_text(WORKLOAD)
    words = f"--bucket-cap-mb 0 -n 2 --timeout 30 -g 2 --plot {plot} --trace {trace}".split()
    _, out, _ = ringside("measure", "ddp", "-o", output, "--model", model, *words)
    lines = out.splitlines()
    assert " ms a step, median of 2 from " in lines[0]
    rows = [line.split()[:2] for line in lines if not line.startswith("#")]
    assert rows == [["0", "4096"], ["1", "4096"]]
    assert json.loads(trace.read_text())["traceEvents"]
    assert "bucket" in plot.read_text()

    found = read(output)
    assert len(found.steps) == 2
    assert found.fingerprint["torch"]
    assert found.memory_bandwidth is None
    assert predict(found).compute_s == pytest.approx(6e-3)

    both = tmp_path / "both.svg"
    compare_ddp.run([output], both, None, None, as_json=True)
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["predicted_s"] / row["measured_s"] - 1 == pytest.approx(row["error"])
    assert len(row["finish_errors"]) == len(row["measured_buckets"]) == 2
    text = both.read_text()
    assert text.index("o.json, predicted") < text.index("o.json, measured")
    assert "remove --cluster, --set, --network, --calibration and --anchor" in refused(
        "compare", output, "--calibration", "none"
    )


@pytest.mark.gloo
@pytest.mark.parametrize("name", slow_or_proof(["convolutions", "transformer"]))
def test_a_real_model_is_trained_checked_and_profiled_in_the_same_run(name):
    found = DdpMeasurement(model=f"{EXAMPLES}:{name}", bucket_cap_mb=1.0, iterations=3, ranks=2).ask().record
    work = found.workload
    assert len(work.arrival) == len(work.parameters)
    assert work.batch in (8, 16)
    assert bool(work.buffers) == (name == "convolutions")
    assert found.memory_bandwidth
    assert found.memory_bandwidth > 1e8
    assert all(step.step_s > 0.3 * (work.totals.forward_s + work.totals.backward_s) for step in found.steps)
    predicted = predict(found)
    assert [b.nbytes for b in predicted.buckets] == [b.nbytes for b in found.median.buckets]
    assert predicted.lower_s <= predicted.step_s <= predicted.upper_s


@pytest.mark.gpu
def test_steps_on_gpus_are_stamped_by_the_devices():
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA GPUs")
    question = DdpMeasurement(model=f"{EXAMPLES}:transformer", backend="nccl", iterations=3, ranks=2)
    for step in question.ask().record.steps:
        assert all(0 < b.ready_s <= b.launch_s <= b.finish_s <= step.step_s for b in step.buckets)


def test_a_workload_with_a_parameter_that_no_layer_names_needs_a_flag(tmp_path):
    idle = tmp_path / "idle.yaml"
    tensors = "parameters: {a: {count: 1}, b: {count: 1}}"
    idle.write_text(f"name: x\n{tensors}\nlayers: [{{name: l, forward: 1s, backward: 1s, gradients: [a]}}]")
    with pytest.raises(ValueError, match=r"no gradient arrives for b.*write `find_unused"):
        DdpMeasurement(model=str(idle)).ask()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"schema": "ringside.ddp/1"', "cannot be read"),
        ('{"schema": "ringside.train/1"}', "no ringside.ddp/1 file"),
        ('{"schema": "ringside.ddp/1", "ranks": "two"}', "ranks: Input should be a valid integer"),
    ],
)
def test_a_file_that_holds_no_steps_is_refused(written, text, complaint):
    path = written(text, "o.json")
    with pytest.raises(ValueError, match=complaint):
        read(path)

import json

import pytest

from ringside.measure_ddp import run
from sim.training.buckets import Bucketing

WORKLOAD = """
name: two
parameters: {a: {count: 1024}, b: {count: 1024}}
layers:
  - {name: two, forward: 1ms, backward: 2ms, gradients: [b]}
  - {name: one, forward: 1ms, backward: 2ms, gradients: [a]}
"""


@pytest.mark.gloo
def test_a_measured_step_is_printed_written_traced_and_drawn(tmp_path, capsys):
    model, output, trace, plot = (tmp_path / name for name in ("m.yaml", "o.json", "t.json", "p.svg"))
    model.write_text(WORKLOAD)
    run(
        str(model),
        output,
        ranks=2,
        bucketing=Bucketing(0),
        iterations=2,
        timeout_s=30,
        plot=plot,
        trace=trace,
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("# two on 2 ranks: step")
    assert [line.split()[:2] for line in lines[-2:]] == [["0", "4096"], ["1", "4096"]]
    content = json.loads(output.read_text())
    assert content["schema"] == "ringside.ddp/1"
    assert len(content["steps"]) == 2
    assert content["fingerprint"]["torch"]
    assert json.loads(trace.read_text())["traceEvents"]
    assert "bucket" in plot.read_text()


def test_bad_input_is_refused_before_anything_is_measured(tmp_path):
    output = tmp_path / "o.json"
    with pytest.raises(ValueError, match="no such file"):
        run("none.yaml", output, ranks=2, bucketing=Bucketing())
    with pytest.raises(ValueError, match="add --emulate"):
        run("sleeping", output, ranks=2, bucketing=Bucketing(), settings=["bandwidth=1Gb/s"])
    with pytest.raises(ValueError, match="write another path"):
        run("sleeping", tmp_path / "no" / "o.json", ranks=2, bucketing=Bucketing())
    with pytest.raises(ValueError, match="no picture format"):
        run("sleeping", output, ranks=2, bucketing=Bucketing(), plot=tmp_path / "p.bmp")
    with pytest.raises(ValueError, match="'stern' is no known cluster"):
        run("sleeping", output, ranks=2, bucketing=Bucketing(), cluster="stern:4")
    assert not list(tmp_path.iterdir())

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.workload.architecture import workload
from ringside.sim.workload.devices import device
from ringside.sim.workload.file import dumps, read, write
from ringside.sim.workload.models import architecture
from ringside.sim.workload.workload import ITEMSIZE, Layer, Tensor, Workload, WorkloadError

TWO_LAYERS = """
name: two layers
batch: 32
sample: image
parameters:
  fc1.weight: {count: 1048576}
  fc1.bias: {count: 1024}
  fc2.weight: {count: 10240, dtype: bfloat16}
buffers:
  mean: {count: 1024}
layers:
  - {name: fc2, forward: 80us, backward: 160us, gradients: [fc2.weight]}
  - {name: fc1, forward: 1.2ms, backward: 2.4ms, gradients: [fc1.bias, fc1.weight], activation: 4MiB}
"""

seconds = st.floats(0, 1e3)
tensors = st.builds(
    Tensor,
    name=st.text(min_size=1, max_size=8),
    count=st.integers(0, 10**9),
    dtype=st.sampled_from(sorted(ITEMSIZE)),
    sparse=st.booleans(),
) | st.builds(
    lambda name, rows, columns: Tensor(name, rows * columns, rows=rows),
    st.text(min_size=1, max_size=8),
    st.integers(1, 1000),
    st.integers(0, 1000),
)
trained = tensors.filter(lambda tensor: "float" in tensor.dtype or "complex" in tensor.dtype)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    parameters = draw(st.lists(trained, max_size=6, unique_by=lambda tensor: tensor.name))
    arrival = draw(st.permutations(range(len(parameters))))
    arriving = arrival[: draw(st.integers(0, len(arrival)))]
    layers, rest = [], list(arriving)
    while rest or draw(st.booleans()):
        taken = draw(st.integers(0, len(rest)))
        kept = draw(st.integers(0, 2**40))
        name = draw(st.text(max_size=8))
        layers.append(Layer(name, tuple(rest[:taken]), draw(seconds), draw(seconds), kept))
        rest = rest[taken:]
    return Workload(
        name=draw(st.text(max_size=8)),
        parameters=tuple(parameters),
        layers=tuple(layers),
        buffers=tuple(draw(st.lists(tensors, max_size=3, unique_by=lambda tensor: tensor.name))),
        batch=draw(st.integers(1, 4096)),
        sample=draw(st.text(max_size=8)),
    )


def test_a_file_is_read_as_it_is_written_down(written: Any) -> None:
    path = written(TWO_LAYERS, "two.yaml")
    assert read(path) == Workload(
        name="two layers",
        parameters=(
            Tensor("fc1.weight", 1048576),
            Tensor("fc1.bias", 1024),
            Tensor("fc2.weight", 10240, "bfloat16"),
        ),
        layers=(Layer("fc2", (2,), 80e-6, 160e-6), Layer("fc1", (1, 0), 1.2e-3, 2.4e-3, 4 * 2**20)),
        buffers=(Tensor("mean", 1024),),
        batch=32,
        sample="image",
    )


@given(workloads())
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, made: Workload) -> None:
    path = tmp_path_factory.mktemp("workload") / "any.yaml"
    write(made, path)
    assert read(path) == made


def test_a_built_in_model_survives_its_file(tmp_path: Path) -> None:
    step = workload(architecture("resnet50"), device("a100"), 32, "tfloat32")
    write(step, tmp_path / "resnet50.yaml")
    assert read(tmp_path / "resnet50.yaml") == step


def test_totals_add_up(written: Any) -> None:
    path = written(TWO_LAYERS, "two.yaml")
    step = read(path)
    assert step.num_parameters == 1048576 + 1024 + 10240
    assert step.totals.nbytes == 4 * (1048576 + 1024) + 2 * 10240
    assert step.arrival == (2, 1, 0)
    assert step.totals.forward_s == pytest.approx(1.28e-3)
    assert step.totals.backward_s == pytest.approx(2.56e-3)
    assert step.totals.activation_nbytes == 4 * 2**20


def test_every_complaint_of_a_file_comes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        """
name: wrong
bach: 3
parameters:
  w: {count: many}
layers:
  - {name: fc, forward: 3 parsecs, gradients: [w]}
"""
    )
    with pytest.raises(WorkloadError) as caught:
        read(path)
    complaints = str(caught.value).splitlines()
    assert len(complaints) == 4
    for text in (
        "bach: is not known; allowed: name, batch",
        "parameters.w.count: 'many'",
        "layers.0.forward: '3 parsecs' is not a duration; write for example 5us",
        "layers.0.backward: is missing",
    ):
        assert any(text in complaint for complaint in complaints), text


def test_every_contradiction_of_a_workload_comes_at_once() -> None:
    with pytest.raises(WorkloadError) as caught:
        Workload(
            name="odd",
            parameters=(Tensor("w", -1), Tensor("w", 1, "float31")),
            layers=(Layer("fc", (0, 2), -1.0, float("nan"), -5), Layer("again", (0,))),
            batch=0,
        )
    complaints = str(caught.value).splitlines()
    assert all(complaint.startswith("odd: ") for complaint in complaints)
    for text in (
        "a batch of 0; write 1 to",
        "tensor 'w' has -1 elements; write 0 to",
        "tensor 'w' has dtype 'float31'; allowed: float32, float64",
        "parameter 'w' appears more than once",
        "layer 'fc' names parameter 2; allowed: 0 to 1",
        "layer 'fc' has a forward of -1.0 s; write 0 to",
        "layer 'fc' has a backward of nan s; write 0 to",
        "layer 'fc' keeps -5 bytes; write 0 to",
        "the gradient of parameter 0 appears more than once",
    ):
        assert any(text in complaint for complaint in complaints), text
    assert len(complaints) == 9


def test_a_batch_too_large_for_many_layers_is_told_once() -> None:
    layers = tuple(Layer(f"layer {number}", (), 0.0, 2e9, 2**51 + number) for number in range(100))
    with pytest.raises(WorkloadError) as caught:
        Workload("wide", (), layers, batch=7)
    backward, kept = str(caught.value).splitlines()
    assert "has a backward of 2000000000.0 s with a batch of 7; write 0 to 1000000000, or a sma" in backward
    assert f"layer 'layer 99' keeps {2**51 + 99} bytes with a batch of 7; write 0 to {2**50}, or" in kept


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "contains no workload; write 'name:', 'parameters:' and 'layers:'"),
        (b"- a", "contains no workload"),
        (b"1: 2", "contains no workload"),
        (b"name: [", "not YAML"),
        (b"\xff\xfe\x00", "cannot be read"),
        (TWO_LAYERS.replace("[fc2.weight]", "[fc3.weight]").encode(), "unknown parameter 'fc3.weight'"),
    ],
)
def test_a_file_that_is_no_workload_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=message):
        read(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="no such file"):
        read(tmp_path / "none.yaml")


def test_the_text_is_for_people() -> None:
    step = Workload("small", (Tensor("w", 3),), (Layer("fc", (0,), 1e-3, 2e-3, 2**20),))
    assert dumps(step).endswith(
        "- name: fc\n  forward: 1 ms\n  backward: 2 ms\n  gradients: [w]\n  activation: 1 MiB\n"
    )


@pytest.mark.parametrize("rows", [0, -1, 3])
def test_rows_that_do_not_divide_a_tensor_are_refused(rows: int) -> None:
    with pytest.raises(WorkloadError, match="rows of 8 elements; write a divisor"):
        Workload("odd", (Tensor("w", 8, rows=rows),), ())

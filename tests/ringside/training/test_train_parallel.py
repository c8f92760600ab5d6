"""``ringside train`` under a layout: its output, its sums, and equal answers by all ways in."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import ringside
from ringside.sim.training.pipeline.actions import write_tables
from ringside.sim.training.pipeline.schedules import tables
from ringside.validation.questions.layout import ByLayout
from ringside.validation.questions.models import with_tokens

GPT = ("--model", "gpt2:256", "--cluster", "dgx-a100:1", "--batch", "8")
PIPELINE = (*GPT, "--strategy", "fsdp", "--tp", "2", "--pp", "2", "--schedule", "interleaved1f1b")

Train = Callable[..., str]


def test_a_table_of_stages_and_what_it_rests_on(train: Train) -> None:
    lines = train(*PIPELINE, "--all").splitlines()
    assert "tokens/s" in lines[0]
    assert "MFU" in lines[0]
    for note in (
        "tensor 2 x shard 2 x pipeline 2, interleaved1f1b with 2 stages a rank",
        "8 of a replica in 8 micro-batches of 1",
        ": fits (chance over 99%), ",
        "driver 0.80 GiB, context 0.74 GiB, NCCL's buffers of tensor and shard and pipeline ",
    ):
        assert any(note in line for line in lines)
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert [row[:2] + row[-4:-3] for row in rows] == [
        ["0", "0", "4"],
        ["1", "4", "4"],
    ]


def test_sequences_are_shared_and_exchanges_hidden_where_asked(train: Train) -> None:
    words = ("--model", "llama3-8b:2048", "--cluster", "dgx-h100:1", "--batch", "1", "--strategy", "fsdp")
    shared = train(*words, "--cp", "4", "--cp-method", "ulysses", "--all")
    assert "context 4 by ulysses x shard 2" in shared
    tensor = (*words, *"--tp 4 --tp-style dtensor --sequence-parallel --batch 8 --micro-batch 8".split())
    blocking, hiding = (json.loads(train(*tensor, *more, "--json")) for more in ((), ("--async-tp",)))
    assert hiding["step_s"] < blocking["step_s"]
    assert hiding["exposed_by_s"]["tensor"] < blocking["exposed_by_s"]["tensor"] / 10


@pytest.mark.parametrize("model", ["gpt3-1.3b", "llama3.1-8b", "gpt2"])
def test_models_with_a_point_in_their_names_take_sequences_of_any_length(model: str) -> None:
    assert with_tokens(model, 1024) == f"{model}:1024"


@pytest.mark.parametrize("model", ["gpt3-1.3b:512", "w.yaml", "net.py:Net"])
def test_a_model_that_says_its_samples_takes_no_other_sequences(model: str) -> None:
    with pytest.raises(ValueError, match="both set the samples; remove one of them"):
        with_tokens(model, 1024)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", "0B0 precedes 0RECV_B0"),
        ("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", "actions.csv never ends: rank 0 waits in 0RECV_B0"),
        ("0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", "they wait for one another"),
        ("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", "0SEND_F0 has nothing to send here"),
        (
            "0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0",
            "0SEND_F0 has nothing to send here",
        ),
    ],
)
def test_a_file_of_actions_whose_messages_do_not_meet_is_refused(
    text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("actions.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=complaint):
        ByLayout(pp=2, schedule="actions.csv").layout()


def test_a_file_of_actions_may_begin_with_the_mark_that_spreadsheets_write(tmp_path: Path) -> None:
    file = tmp_path / "actions.csv"
    file.write_text("0F0,0B0\n1F0,1B0", encoding="utf-8-sig")
    assert len(ByLayout(pp=2, schedule=str(file)).layout().actions(1)) == 2


def test_json_adds_up(train: Train) -> None:
    answer = json.loads(train(*PIPELINE, "--json"))
    assert answer["schema"] == "ringside.train/1"
    assert answer["mesh"] == {"tensor": 2, "context": 1, "shard": 2, "replicate": 1, "pipeline": 2}
    assert answer["micro_batches"] == 8
    assert answer["samples"] == 16
    assert answer["throughput"] == pytest.approx(16 / answer["step_s"])
    assert answer["tokens_per_s"] == pytest.approx(256 * answer["throughput"])
    assert answer["gpu_hours_per_1e9_tokens"] == pytest.approx(8 * 1e9 / answer["tokens_per_s"] / 3600)
    assert answer["mfu"] == answer["hfu"] > 0
    for row in answer["rows"]:
        parts = sum(row[name] for name in ("compute_s", "contention_s", "copy_s", "bubble_s", "exposed_s"))
        assert parts == pytest.approx(answer["step_s"])
        assert row["memory_bytes"]["total"] == sum(row["memory_bytes"]["pools"].values())
    bubbles = [row["bubble_s"] for row in answer["rows"]]
    assert answer["bubble_share"] == pytest.approx(sum(bubbles) / 2 / answer["step_s"])
    assert answer["fits"]
    assert answer["would_fit"] is None


def test_compute_is_as_slow_beside_exchanges_of_one_replica_as_of_two(train: Train) -> None:
    words = ("--model", "gpt3-1.3b:2048", "--cluster", "dgx-h100:1", "--strategy", "megatron_ddp")
    one, two = (
        json.loads(train(*words, "--tp", "4", "--sequence-parallel", "-g", ranks, "--batch", "1", "--json"))
        for ranks in ("4", "8")
    )
    slowed = [answer["rows"][0]["contention_s"] for answer in (one, two)]
    assert slowed[0] == pytest.approx(slowed[1], rel=0.01)
    assert slowed[0] > 0


@pytest.mark.parametrize(
    ("layout", "passes"),
    [((), 12), (("--tp", "2", "--sequence-parallel"), 12), (("--strategy", "fsdp"), 12), (("--pp", "2"), 6)],
)
def test_no_layer_takes_less_time_than_its_host_to_launch_it(
    train: Train, layout: tuple[str, ...], passes: int
) -> None:
    def asked(launch_ms: str) -> float:
        micro = ("--micro-batch", "2") if layout else ()
        words = (*GPT, *layout, *micro, "--batch", "2", "--launch-ms", launch_ms, "--json")
        answer = json.loads(train(*words))
        return float(answer["step_s"] if layout else answer["rows"][0]["step_s"])

    steps = [asked(launch_ms) for launch_ms in ("0", "0.01", "5", "50")]
    assert steps == sorted(steps)
    assert passes * 0.050 < steps[-1] < passes * 0.050 + 2 * steps[0] + 0.1


def test_checkpointing_computes_more_than_the_model_needs_and_keeps_less(train: Train) -> None:
    plain, full = (
        json.loads(train(*GPT, "--tp", "2", "--checkpointing", word, "--json")) for word in ("none", "full")
    )
    assert full["hfu"] > full["mfu"]
    assert full["step_s"] > plain["step_s"]
    assert full["memory_bytes"]["pools"]["activations"] < plain["memory_bytes"]["pools"]["activations"]


@pytest.mark.slow
def test_experts_are_dealt_out_and_the_busiest_rank_sets_the_pace(train: Train, tmp_path: Path) -> None:
    words = ("--model", "mixtral-8x7b:512", "--cluster", "dgx-h100:1", "--strategy", "fsdp", "--batch", "1")
    even = json.loads(train(*words, "--ep", "8", "--json", "--plot", "p.svg", "--trace", "t.json"))
    busy = json.loads(train(*words, "--ep", "8", "--ep-imbalance", "1.5", "--json"))
    assert (tmp_path / "p.svg").exists()
    assert busy["step_s"] > even["step_s"]
    assert {"expert", "tensor expert"} & set(even["exposed_by_s"])
    assert "experts among 8" in train(*words, "--ep", "8")
    step = ringside.train("mixtral-8x7b:512", "dgx-h100:1", strategy="fsdp", batch=1, ep=8)
    assert step.step_s == even["step_s"]  # type: ignore[union-attr]


@pytest.mark.slow
def test_deepep_exchanges_tokens_of_experts_where_its_library_runs(train: Train) -> None:
    words = ("--model", "mixtral-8x7b:512", "--strategy", "fsdp", "--batch", "1", "--ep", "8")
    text = train(*words, "--cluster", "dgx-h100:1", "--dispatcher", "deepep")
    assert "tokens of expert groups by DeepEP's normal kernels" in " ".join(text.replace("#", " ").split())
    for library in ("ideal", "gloo"):
        with pytest.raises(ValueError, match="deepep runs on NVIDIA's GPUs; write `library` nccl"):
            ringside.train(
                "mixtral-8x7b:512", "dgx-h100:1", strategy="fsdp", batch=1, ep=8, dispatcher="deepep",
                library=library,
            )  # fmt: skip


def test_layers_of_a_vision_transformer_are_units_of_fsdp(train: Train) -> None:
    answer = json.loads(
        train(
            "--model", "vit-b-16", "--cluster", "dgx-a100:1", "--strategy", "fsdp", "--batch", "4", "--json"
        )
    )
    layers = answer["rows"][0]["layers"]
    assert layers.count("encoder.layers.encoder_layer_11") == 1
    assert not any("mlp" in name for name in layers)


def test_what_does_not_fit_is_told_what_would(train: Train) -> None:
    words = ("--model", "llama2-7b:512", "--cluster", "dgx-a100:1", "--micro-batch", "1", "--batch", "2")
    answer = json.loads(train(*words, "--json"))
    assert not answer["fits"]
    assert answer["would_fit"]["options"] == "--strategy fsdp"
    changed = json.loads(train(*words, *answer["would_fit"]["options"].split(), "--json"))
    assert changed["fits"]
    assert changed["memory_bytes"]["total"] == pytest.approx(answer["would_fit"]["total"], rel=0.1)
    with pytest.raises(RuntimeError, match="does not fit"):
        train(*words, "--must-fit")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_tight_is_neither_and_must_fit_obeys(train: Train, strategy: str) -> None:
    """What is held decides, as the reserve grows, between fits and tight, and the margin says so."""
    words = ("--model", "gpt2:256", "--cluster", "dgx-a100:1", "--strategy", strategy, "--batch", "2")
    held = json.loads(train(*words, "--json"))["memory_bytes"]
    total, memory = held["total"], held["of_gpu"]
    assert memory == 81920 << 20
    for reserve, verdict in ((memory - total, "fits"), (memory - total + 1, "tight")):
        answer = json.loads(train(*words, "--reserve", f"{reserve}", "--json"))
        assert answer["verdict"] == verdict
        assert answer["fits"] == (verdict == "fits")
        assert answer["memory_bytes"]["margin"] == memory - total - reserve
        assert f": {verdict} (chance over 99%), " in " ".join(
            train(*words, "--reserve", f"{reserve}").replace("\n#", "").split()
        )
    train(*words, "--reserve", f"{memory - total}", "--must-fit")
    with pytest.raises(RuntimeError, match=r"gpt2:256 is tight in a GPU; a smaller --batch"):
        train(*words, "--reserve", f"{memory - total + 1}", "--must-fit")


@pytest.mark.slow
def test_a_measured_throughput_sets_the_pace(train: Train) -> None:
    answer = json.loads(train(*GPT, "--tp", "2", "--measured", "100seq/s@8", "--json"))
    assert answer["throughput"] == pytest.approx(100, rel=1e-4)


def test_a_measured_throughput_of_fewer_machines(train: Train) -> None:
    words = ("--model", "gpt2:256", "--batch", "4", "--micro-batch", "2", "--cluster", "dgx-a100:2")
    answer = json.loads(train(*words, "--measured", "100seq/s@8", "--json"))
    assert 190 < answer["throughput"] < 200


def test_pictures_and_traces_show_all_stages(train: Train, tmp_path: Path) -> None:
    train(*PIPELINE, "--plot", "p.svg", "--trace", "t.json")
    assert "stage 1" in (tmp_path / "p.svg").read_text()
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 4}
    assert any(event["name"].startswith("optimizer") for event in events)


def test_the_same_words_in_python(train: Train) -> None:
    asked = json.loads(train(*PIPELINE, "--clip", "--json"))
    step = ringside.train(
        "gpt2:256", "dgx-a100:1", batch=8, strategy="fsdp", tp=2, pp=2, schedule="interleaved1f1b", clip=True
    )
    assert isinstance(step, ringside.ParallelStep)
    assert step.step_s == asked["step_s"]
    assert step.bubble_share == asked["bubble_share"]
    (row,) = ringside.rows([step])
    assert row["bubble_share"] == asked["bubble_share"]
    assert row["peak_nbytes"] == asked["memory_bytes"]["total"]


@pytest.mark.parametrize("words", [("--micro-batch", "4"), ("--micro-batch", "2")])
def test_a_module_by_name_needs_no_decoder(train: Train, words: tuple[str, ...]) -> None:
    base = ("--model", "bert-base", "--cluster", "star:4", "--batch", "8", *words, "--strategy")
    sharded, plain = (json.loads(train(*base, strategy, "--json")) for strategy in ("fsdp", "ddp"))
    assert sharded["memory_bytes"]["total"] < plain["memory_bytes"]["total"]
    assert sharded["tokens"] is None
    assert plain["mfu"] > 0


def test_plain_words_are_the_step_of_before(train: Train) -> None:
    answer = json.loads(train(*GPT, "--strategy", "ddp", "--tp", "1", "--pp", "1", "--json"))
    assert answer["rows"][0]["buckets"]


def test_a_measured_rate_beyond_the_peak_is_refused() -> None:
    # 256 tokens of 124 million parameters are 0.2 TFLOP a sample, and eight A100 have 2,496 TFLOP/s
    with pytest.raises(ValueError, match=r"20000 samples/s on 8 ranks is 1\.\d+ times the peak of a100"):
        ringside.train(
            "gpt2:256", "dgx-a100:1", strategy="fsdp", batch=64, micro_batch=64, measured=(20000, 8)
        )


def test_actions_of_a_file_are_the_schedule_that_they_are(train: Train, tmp_path: Path) -> None:
    write_tables(tables("looped_bfs", 2, 2, 8), tmp_path / "own.csv")
    words = (*GPT, "--strategy", "fsdp", "--pp", "2", "--json", "--schedule")
    named, own = (json.loads(train(*words, which)) for which in ("looped_bfs", "own.csv"))
    assert own["step_s"] == named["step_s"]
    assert own["rows"] == named["rows"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--pp", "4"), "has actions of 2 ranks; write `pp` 2"),
        (("--pp", "2", "--virtual", "3"), "has 2 stages on each rank; leave `virtual` out"),
        (("--pp", "2", "--micro-batch", "2"), "passes 8 micro-batches, but a batch of 8 has 4"),
    ],
)
def test_actions_of_a_file_must_be_of_the_layout(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "own.csv"
    write_tables(tables("looped_bfs", 2, 2, 8), file)
    pairs = zip(words[::2], words[1::2], strict=True)
    options: dict[str, Any] = {word.strip("-").replace("-", "_"): int(count) for word, count in pairs}
    with pytest.raises(ValueError, match=message):
        ringside.train("gpt2:256", "dgx-a100:1", batch=8, strategy="fsdp", schedule=str(file), **options)


PAGE = Path(__file__).parents[3] / "docs" / "parallel.md"


def test_the_page_names_every_option_and_every_field(train: Train) -> None:
    page = PAGE.read_text()
    for field in fields(ByLayout):
        assert f"--{field.name.replace('_', '-')}" in page
    answer = json.loads(train(*PIPELINE, "--json"))
    names = {*answer, *answer["rows"][0], *answer["memory_bytes"]} - {"schema", "inputs", "notes"}
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_memory_is_told_by_purpose_and_by_what_layers_keep(train: Train, tmp_path: Path) -> None:
    picture = tmp_path / "memory.png"
    answer = json.loads(train(*PIPELINE, "--memory", "--plot-memory", str(picture), "--json"))
    saved = [one["saved_bytes"] for one in answer["savings"]]
    assert saved == sorted(saved, reverse=True)
    assert saved
    assert saved[-1] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    for row, kept in zip(answer["rows"], answer["kept"], strict=True):
        assert sorted(name for one in kept for name in one["layers"]) == sorted(row["layers"])
    lines = train(*PIPELINE, "--memory").splitlines()
    purposes = {name for row in answer["rows"] for name in row["memory_bytes"]["pools"]}
    assert purposes <= {" ".join(line.split()[:-2]) for line in lines}
    assert any(f"{answer['savings'][0]['options']}: -" in line for line in lines)

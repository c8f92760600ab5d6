"""Pipelines whose stages' layers are written as Megatron-LM writes them, and groups of micro-batches."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.compute.prices import StackOnGpu, prices_on
from ringside.sim.program import Send, Together
from ringside.sim.program.check import PROVED, check
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.memory.optimizers import find_optimizer
from ringside.sim.training.pipeline.layer_layout import stage_layers
from ringside.sim.training.program import Writing
from ringside.sim.training.tensor.decoder import decoder_on_rank
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.devices import device

GPU = device("a100")
SMALL = Decoder(
    name="small", layers=8, width=64, heads=8, key_value_heads=4, hidden=128, vocabulary=256, sequence=32,
    longest=32,
)  # fmt: skip


def written(layout: Layout, batch: int = 8, decoder: Decoder = SMALL) -> Writing:
    model = decoder_on_rank(decoder, replace(layout, pp=1, schedule="1f1b", virtual=1, pp_layout=None,
                                           microbatch_group=None),
                            StackOnGpu(prices_on(GPU, "bf16")), "float32")  # fmt: skip
    return Writing(
        ParallelJob(
            model=model, layout=layout, mesh=mesh_of(layout, layout.pp, 8), batch=batch,
            optimizer=find_optimizer("adam"), precision="bfloat16",
            costs=Costs(memory_bandwidth=GPU.streaming),
        )
    )  # fmt: skip


# the examples of Megatron-LM's parser, and those of its tests
@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("Ettt|(tt|)*29,m|L", ["Ettt", *["tt"] * 29, "m", "L"]),
        ("Et*3|(tt|)*2tL", ["Ettt", "tt", "tt", "tL"]),
        ("E|(t|)*3mL", ["E", "t", "t", "t", "mL"]),
        ("E,t|(|t)*2,L", ["Et", "", "t", "tL"]),
        ("Et||tL", ["Et", "", "tL"]),
        ("EtmmL", ["EtmmL"]),
    ],
)
def test_megatrons_texts_are_unrolled(text: str, stages: list[str]) -> None:
    assert stage_layers(text) == tuple(stages)


@given(st.lists(st.integers(0, 12), min_size=2, max_size=8).filter(any))
def test_counts_of_layers_are_read_as_they_are_written(counts: list[int]) -> None:
    text = "E" + "|".join(f"t*{count}" for count in counts) + "L"
    assert [own.count("t") for own in stage_layers(text)] == counts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Et|x|tL", "'x' is no layer; write E, t, m, L"),
        ("", "one E first, then t"),
        ("t|tL", "one E first, then t"),
        ("Et|t", "one L last"),
        ("Et|EtL", "one E first"),
        ("EtLt", "one L last"),
        ("Emt|tL", "then t, then m"),
        ("Et|m|mL", "m in several stages; write all of them in one"),
        ("Et*999999|L", "means 100.* letters; write 100000 at the most"),
        ("E(t*9999)*9999L", "letters; write 100000"),
        ("Et*2(L", r"'\(' is no layer"),
    ],
)
def test_texts_that_megatron_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stage_layers(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"pp": 1}, "`pp_layout` needs a pipeline; write `pp` 4"),
        ({"pp": 3}, "has 4 stages, and `pp` 3 .*; write as many, or `pp` 2, 4"),
        ({"pp": 4, "virtual": 2}, "has 4 stages, and `pp` 4 with `virtual` 2 8"),
        ({"pp": 4, "microbatch_group": 4}, "`microbatch_group` applies to the schedule interleaved1f1b"),
        ({"pp": 2, "virtual": 0, "microbatch_group": 0}, "`microbatch_group` 0; write 1 or more"),
    ],
)
def test_layouts_that_cannot_be_say_what_to_write(words: dict[str, int], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Layout(pp_layout="Et*3|t|t|t*3L", **words)  # type: ignore[arg-type]


def test_another_number_of_layers_is_refused() -> None:
    with pytest.raises(LayoutError, match="has 3 t and 1 m; write 8 t and 0 m, as many as small has"):
        written(Layout(pp=2, pp_layout="Ett|tmL")).operations(0)


@pytest.mark.parametrize("strategy", ["ddp", "megatron_ddp"])
def test_a_text_that_says_the_usual_stages_changes_nothing(strategy: str) -> None:
    usual = written(Layout(pp=4, strategy=strategy))
    said = written(Layout(pp=4, strategy=strategy, pp_layout="Ett|(tt|)*2ttL"))
    for rank in range(4):
        assert repr(usual.operations(rank)) == repr(said.operations(rank))


@pytest.mark.parametrize("text", [None, "Et*4|t*4mmL", "Et*5|t*3mmL"])
def test_further_predictions_and_a_copy_of_the_embedding_are_on_the_last_stage(text: str | None) -> None:
    writing = written(Layout(pp=2, pp_layout=text), decoder=replace(SMALL, predicted=2))
    assert check(writing.program()).verdict == PROVED
    names = [layer.name for layer in writing.job.layers(1)]
    assert names[-3:] == ["prediction 0", "prediction 1", "head"]
    assert "embedding.weight" in {one.name for one in writing.job.layers(1)[-1].parameters}
    both = [one for one in writing.operations(1) if one.name == "gradients of the embedding"]
    assert len(both) == 1


@given(
    st.lists(st.integers(0, 6), min_size=4, max_size=4).filter(lambda counts: sum(counts) <= 8),
    st.sampled_from([("1f1b", 4), ("interleaved1f1b", 2)]), st.sampled_from(["ddp", "distributed_optimizer"]),
)  # fmt: skip
def test_uneven_and_empty_stages_have_all_layers_and_end(
    counts: list[int], schedule: tuple[str, int], strategy: str
) -> None:
    counts[-1] += 8 - sum(counts)
    name, ranks = schedule
    text = "E" + "|".join("t" * count for count in counts) + "L"
    layout = Layout(pp=ranks, virtual=0, schedule=name, pp_layout=text, strategy=strategy, micro_batch=2)
    writing = written(layout)
    assert check(writing.program()).verdict == PROVED
    job = writing.job
    found = [layer.name for stage in range(4) for layer in job.layers(stage)]
    assert found == [layer.name for layer in job.model.layers]
    sizes = {
        part.nbytes
        for rank in range(ranks)
        for operation in writing.operations(rank)
        for part in (operation.action.parts if isinstance(operation.action, Together) else [operation.action])
        if isinstance(part, Send)
    }
    assert sizes == {job.model.between_nbytes[0]}


@pytest.mark.parametrize("group", [2, 4, 8])
def test_groups_of_micro_batches_pass_a_stage_in_a_row(group: int) -> None:
    """Megatron-LM's get_schedule_table: a group through the first stage, then through the second."""
    layout = Layout(pp=2, schedule="interleaved1f1b", virtual=2, microbatch_group=group)
    forwards = [(one.stage, one.micro_batch) for one in layout.actions(8)[0] if one.kind.value == "F"]
    wanted = [(stage, number) for first in range(0, 8, group) for stage in (0, 2)
              for number in range(first, first + group)]  # fmt: skip
    assert forwards == wanted
    assert check(written(layout).program()).verdict == PROVED
    if group == 2:
        usual = replace(layout, microbatch_group=None)
        assert usual.actions(8) == layout.actions(8)


def test_groups_smaller_than_the_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"groups of 1 micro-batches; write 2 \(one per rank\) to 8"):
        Layout(pp=2, schedule="interleaved1f1b", virtual=2, microbatch_group=1).actions(8)

"""Published steps predicted with nothing known: their rows, intervals and summaries."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.compute.doubt import ALIKE, BETWEEN, WITHIN, of_others, student
from ringside.sim.workload.decoder import decoder
from ringside.validation.published.training import (
    bigscience,
    internevo,
    known,
    korthikanti,
    llama2_fsdp,
    megatron_bridge,
    megatron_readme,
    simumax,
)
from ringside.validation.scorecard.absolute import (
    NOT_NAMED,
    SHOWN,
    TRAITS,
    absolute_scores,
    alone,
    covering,
    deviations,
    family,
    residual,
)
from ringside.validation.scorecard.judged import JudgedRow
from ringside.validation.scorecard.training import training_tables


def row(source: str, stack: str, ratio: float, part: str = "") -> JudgedRow:
    """A row whose step takes ``ratio`` times the second that is predicted."""
    traits = {"gpu": "h100", "stack": stack, "precision": "bf16", "source": source}
    return JudgedRow(source, "a step", ratio, 1.0, part=part, traits=traits)


def test_each_source_counts_once_whatever_its_rows() -> None:
    few = [row("a", "te", ratio) for ratio in (0.9, 1.0, 1.1)] + [row("b", "te", 1.2)]
    many = [*few, *(row("b", "te", 1.2) for _ in range(50))]
    assert deviations(few).factors == pytest.approx({"te": exp(log(1.2) / 2)})
    assert deviations(many).between == pytest.approx(deviations(few).between)
    assert deviations(many).factors == pytest.approx(deviations(few).factors)


def test_families_have_factors_of_their_own_and_share_deviations() -> None:
    fitted = deviations([row("a", "te", 1.1), row("b", "eager", 1.5), row("c", "compile", 1.5)])
    assert fitted.factors == pytest.approx({"te": 1.1, "others": 1.5})
    assert fitted.within == 0.0
    apart = deviations(
        [row(name, "te", exp(shift)) for name, shift in zip("abc", (-0.1, 0.0, 0.1), strict=True)]
    )
    assert apart.between == pytest.approx(0.1 * 1.4826)
    assert apart.half_width > apart.known_half_width == 1.0


def test_an_interval_knows_nothing_of_its_own_source() -> None:
    others = [row(name, "te", 1 + shift) for name, shift in (("b", 0.0), ("c", 0.05), ("d", -0.05))]
    near, far = (
        next(one for one in absolute_scores([row("a", "te", ratio), *others]).rows if one.series == "a")
        for ratio in (1.0, 3.0)
    )
    assert (near.low, near.high) == pytest.approx((far.low, far.high))
    assert near.low < 1.0 < near.high < far.measured
    # without any other source it is the interval of `train`
    (one,) = absolute_scores([row("a", "te", 1.0)]).rows
    assert one.high == of_others()


def test_an_interval_is_as_wide_as_sources_with_the_same_stack_and_gpu_differ() -> None:
    """Where there are none it is as wide as all others tell."""
    near = [row(name, "te", ratio) for name, ratio in zip("abcde", (1.0, 1.01, 0.99, 1.0, 1.02), strict=True)]
    far = [row(name, "jax", ratio) for name, ratio in zip("fghij", (1.3, 0.8, 1.1, 0.8, 1.2), strict=True)]
    fitted = deviations([*near, *far])
    widths = [fitted.width(row("new", stack, 1.0)) for stack in ("te", "eager", "jax")]
    assert 1 < widths[0] < widths[1] < widths[2]
    assert {setup: sources for setup, (sources, _) in fitted.alike.items()} == {
        ("te", "h100"): 5, ("jax", "h100"): 5,
    }  # fmt: skip


@given(st.integers(0, 40), st.floats(0.01, 0.3), st.floats(0, 0.3))
def test_more_sources_that_differ_as_much_narrow_an_interval_to_the_normal_one(
    sources: int, between: float, within: float
) -> None:
    """Of many sources a deviation is known, and an interval is a normal distribution's."""
    widths = [
        of_others(count, count * between**2, between, within) for count in (sources, sources + 1, 10**6)
    ]
    assert widths[0] > widths[1] > widths[2]
    assert log(widths[2]) == pytest.approx(student(10**6) * (between**2 + within**2) ** 0.5)
    assert of_others(sources, (sources + 1) * between**2, between, within) > widths[0]


def test_quantiles_of_student_s_t() -> None:
    """Abramowitz and Stegun, table 26.10, nine of ten below."""
    fitted = [student(freedom) for freedom in (4, 5, 10, 30, 10**6)]
    assert fitted == pytest.approx([1.533, 1.476, 1.372, 1.310, 1.2816], abs=6e-4)


@given(st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=4), min_size=1, max_size=6))
def test_four_of_five_rows_lie_within_the_factor_if_each_source_weighs_the_same(
    sources: list[list[float]],
) -> None:
    half = log(covering(sources))

    def inside(most: float) -> float:
        return sum(sum(abs(one) <= most for one in own) / len(own) for own in sources) / len(sources)

    assert inside(half + 1e-9) >= 0.8 - 1e-6
    assert inside(half - 1e-6) < 0.8
    # a source counts no more for telling all its rows twice
    assert covering([*sources[:-1], sources[-1] * 2]) == pytest.approx(covering(sources))


def test_factors_of_other_sources_move_the_rows_that_are_judged_again() -> None:
    slow = [row(name, "eager", 1.25) for name in "abc"]
    scored = absolute_scores([*slow, row("shown", "eager", 9.0, SHOWN)])
    assert scored.scores[0].errors.bias == pytest.approx(1 / 1.25 - 1)
    assert scored.left_out.errors.median == pytest.approx(0.0, abs=1e-12)
    assert [one.series for one in scored.shown] == ["shown"]
    assert scored.scores[0].errors.rows == 3
    assert {score.group for score in scored.scores} == {"all", "gpu stack precision", *TRAITS}
    assert scored.once == pytest.approx((0.2, 0.2, -0.2))


def test_a_stack_that_is_not_named_has_a_wider_interval_and_tells_nothing() -> None:
    named = [row(name, "te", 1.0) for name in "abc"]
    scored = absolute_scores([*named, row("jax", NOT_NAMED, 1.5)])
    *_, last = scored.rows
    assert last.high > scored.rows[0].high
    assert scored.deviations == deviations(named)


def test_a_row_has_the_traits_of_its_question() -> None:
    (step,) = (one for one in simumax.steps() if (one.model, one.tensor) == ("llama3-70b", 4))
    fitted = alone("simumax", "a step", 2.0, 1.0, step.training(None))
    assert fitted.traits == {"gpu": "b200", "stack": "te", "precision": "bf16", "source": "simumax"}
    assert family(fitted) == "te"
    assert residual(fitted) == pytest.approx(log(2))


def test_printed_shares_of_the_peak_follow_from_the_steps() -> None:
    for step in megatron_readme.steps():
        assert step.replica_batch % step.together == 0
        assert step.batch * step.tensor * step.pipeline % step.gpus == 0
    sizes = {step.model: decoder(step.decoder).num_parameters for step in megatron_readme.steps()}
    # arXiv:2104.04473, table 1: billions of parameters
    assert {name: round(sizes[name] / 1e9, 1) for name in ("3.6B", "18B", "39B", "76B")} == {
        "3.6B": 3.6, "18B": 18.4, "39B": 39.1, "76B": 76.1,
    }  # fmt: skip


def test_bigscience_s_tflops_follow_from_its_seconds() -> None:
    """The pages count eight FLOPs a parameter and token with checkpointing, six without."""
    first = next(step for step in bigscience.steps() if step.gpu == "v100")
    flops = 8 * 1.3e9 * 2048 * first.batch
    assert flops / first.step_s / first.gpus / 1e12 == pytest.approx(47.0, abs=0.1)
    # the printed 157 TFLOP/s of six layers are those of 512 sequences, not of the 2,048 in the table
    (six,) = (step for step in bigscience.steps() if step.step_s == 119.19)
    model = decoder(six.training(None, 1).model)
    per_step = six.batch * (model.training_flops() + model.recomputed_flops("full"))
    assert per_step / six.step_s / six.gpus / 1e12 == pytest.approx(157.02, rel=0.01)


def test_a_bridge_step_has_whole_micro_batches_and_the_published_tokens() -> None:
    steps = megatron_bridge.steps()
    assert len({step.name for step in steps}) > 50
    for step in steps:
        ranks = step.tensor * step.pipeline * step.context
        assert step.micro_batches * step.micro_batch * step.gpus == step.batch * ranks
        assert step.tokens_per_s * step.step_s * step.gpus == pytest.approx(step.batch * step.sequence)
    first = next(step for step in steps if step.model == "deepseek-v3" and step.second_token)
    assert decoder(first.training(1).model).layers == 62


def test_recomputed_blocks_are_what_hfu_has_above_mfu() -> None:
    shares = {
        (row.model, row.gpu): row.recomputed for row in llama2_fsdp.steps() if row.framework == "fms-fsdp"
    }
    assert shares["llama2-7b", "a100"] == 0.0
    assert shares["llama2-34b", "a100"] == 1.0
    assert 0.3 < shares["llama2-13b", "a100"] < 0.5


def test_maxtext_s_replicas_exchange_nothing_beside_computing() -> None:
    """A rank's part of the gradients goes over its share of the cards, twice but for what stays."""
    one, two, *_ = (row for row in llama2_fsdp.steps() if row.framework == "maxtext")
    alone, beside = (row.training(None).step() for row in (one, two))
    assert one.predicted_s(None) == pytest.approx(alone.step_s)
    nbytes = 2 * decoder(two.decoder).num_parameters / 8
    hidden = two.predicted_s(None) - beside.step_s
    assert hidden == pytest.approx(nbytes / 12.5e9, rel=0.05)


def test_the_known_llama_has_the_paper_s_batch_and_pipeline() -> None:
    question = known.llama(8192, 32)
    assert question.layout().pp == 16
    assert known.LLAMA_SEQUENCES == 2048
    assert pytest.approx(1543, abs=1) == known.DEEPSEEK_TOKENS_PER_S


def test_steps_of_a100_come_out_near_with_nothing_known() -> None:
    scored = absolute_scores([*korthikanti.absolute(), *internevo.absolute()]).scores[0]
    assert scored.errors.rows == 33
    assert scored.errors.median < 0.08
    assert scored.errors.worst < 0.2


def test_tables_are_those_that_judge_from_a_row_or_from_none() -> None:
    with_row, without = (
        {table.name for table in training_tables(absolute=absolute)} for absolute in (False, True)
    )
    assert {"known", "megatron_bridge"} <= without - with_row
    assert {"ddp", "fp8"} <= with_row - without
    assert "megatron" in with_row & without
    with pytest.raises(ValueError, match="unknown table 'ddp'"):
        training_tables(["ddp"], absolute=True)


@pytest.mark.proof
def test_shipped_deviations_are_those_of_all_published_steps() -> None:
    judged = [
        row for table in training_tables(absolute=True) for row in table.absolute() if row.part != SHOWN
    ]
    measured = deviations(judged)
    assert pytest.approx(measured.between, abs=0.001) == BETWEEN
    assert pytest.approx(measured.within, abs=0.001) == WITHIN
    assert {key: sources for key, (sources, _) in measured.alike.items()} == {
        key: sources for key, (sources, _) in ALIKE.items()
    }
    for key, (_, squares) in measured.alike.items():
        assert ALIKE[key][1] == pytest.approx(squares, abs=0.0005), key

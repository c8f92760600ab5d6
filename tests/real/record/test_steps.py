"""A step is as many optimizer steps as repeat, with one of each optimizer."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ringside.real.questions.recording import ScriptRecording
from ringside.real.record.script import steps as module
from ringside.real.record.script.steps import Steps
from ringside.real.record.script.tape import Tape
from ringside.sim.recorded.job import Operator

AT_MOST = 40


class StoppedError(Exception):
    """StoppedError is recorded."""


class Loop:
    """A script that does what a text says: small letters are operators, large ones steps of an optimizer.

    A step of an optimizer comes after a backward, unless a ``+`` comes before it.
    """

    def __init__(self, monkeypatch, optimizers, at_most=AT_MOST, like=None):
        self.tape = Tape()
        monkeypatch.setattr(module, "TAPE", self.tape)
        self.steps = Steps(at_most, self._end, like)
        self._optimizers = {
            name: torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1) for name in optimizers
        }
        monkeypatch.setattr(self.steps, "_waiting", self._waiting)

    def _end(self):
        raise StoppedError

    def _waiting(self):
        return [one for one in self._optimizers.values() if one not in self.steps._stepped_at]

    def run(self, text):
        """Run a text; return the operators of the step, and of the optimizer steps in it, if it is steady."""
        backward = self.steps._begun(lambda: None)
        try:
            before = ""
            for one in text:
                if one.islower():
                    self.tape.post(Operator(one))
                elif one.isupper():
                    if before != "+":
                        backward()
                    self.steps._stepped(self._optimizers[one])
                before = one
        except StoppedError:
            pass
        _, begin, end = self.steps.bounds()
        names = [one.name for one in self.tape.actions]
        return "".join(names[one.action] for one in self.tape.entries[begin.entries : end.entries])


STEPS = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4)


@given(STEPS, st.text("xyz", max_size=4))
def test_a_step_ends_with_the_loop_and_holds_each_optimizer(operators, warmup):
    with pytest.MonkeyPatch.context() as patch:
        last = len(operators) - 1
        body = "".join(f"{one}{'AB'[number == last > 0]}" for number, one in enumerate(operators))
        loop = Loop(patch, "A" if last == 0 else "AB")
        recorded = loop.run(warmup + body * 8)
        assert recorded == "".join(operators)
        assert loop.steps.period == len(operators)
        assert loop.steps.difference() == ""


@pytest.mark.parametrize(
    ("loop", "step", "period"),
    [
        ("aA", "a", 1),
        ("aAbB", "ab", 2),
        ("aAaAbB", "aab", 3),
        ("aAaAaAaAaAbB", "aaaaab", 6),
        ("aAbB+C", "ab", 2),
        ("aA+B", "a", 1),
        ("abababA", "ababab", 1),
    ],
)
def test_the_default_is_enough_for_turns_that_begin_otherwise(loop, step, period, monkeypatch):
    optimizers = [one for one in "ABC" if one in loop]
    made = Loop(monkeypatch, optimizers, at_most=6)
    assert made.run("x" + loop.replace("B", "yB") * 2 + loop * 6) == step
    assert made.steps.period == period


FIRST = "only one step was recorded, the first, with warm-up since its optimizer was made"


@pytest.mark.parametrize(
    ("script", "step", "difference"),
    [
        ("xaA", "xa", FIRST),
        ("xaAbA", "b", "only one step was recorded"),
        ("xaAbB", "xab", FIRST),
        ("xaA+BbA+B", "b", "only one step was recorded"),
    ],
)
def test_of_one_or_two_steps_the_last_is_recorded(script, step, difference, monkeypatch):
    loop = Loop(monkeypatch, [one for one in "AB" if one in script])
    assert loop.run(script) == step
    assert loop.steps.difference() == difference


def test_an_optimizer_that_never_steps_is_awaited_and_told(monkeypatch):
    loop = Loop(monkeypatch, "AB", at_most=5)
    assert loop.run("aA" * 20) == "a"
    assert len(loop.steps.marks) == 6
    assert loop.steps.notes() == ["optimizers that have not stepped are not in the step: SGD"]


def test_an_optimizer_that_steps_no_more_is_a_difference(monkeypatch):
    loop = Loop(monkeypatch, "AB", at_most=5)
    loop.run("bB" + "aA" * 20)
    assert loop.steps.difference() == "not all optimizers step in it"


def test_a_rank_that_should_equal_another_ends_a_step_earlier(monkeypatch):
    loop = Loop(monkeypatch, "AB", like=(9, 3, 3))
    assert loop.run("aAbAbB" * 9) == "abb"
    assert len(loop.steps.marks) == 6


GAN = """
import torch
maker, judge = (torch.nn.Linear(4, 4).cuda() for _ in range(2))
of_judge, of_maker = (torch.optim.Adam(one.parameters()) for one in (judge, maker))
for number in range(20):
    for _ in range(2):
        of_judge.zero_grad()
        for _ in range(2):
            judge(maker(torch.randn(8, 4, device="cuda")).detach()).mean().backward()
        of_judge.step()
    of_maker.zero_grad()
    judge(maker(torch.randn(8, 4, device="cuda"))).mean().backward()
    of_maker.step()
"""


ONE_STEP = """
import torch
model = torch.nn.Linear(512, 512, bias=False).cuda()
model(torch.randn(8, 512, device="cuda")).mean()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(8, 512, device="cuda")).mean().backward()
optimizer.step()
"""


@pytest.mark.slow
def test_the_first_step_begins_where_its_optimizer_is_made(written):
    answer = ScriptRecording(command=[str(written(ONE_STEP, "one.py"))], ranks=1).ask()
    (rank,) = answer.job.recorded
    names = [rank.actions[one.action].name for one in rank.entries]
    assert names.count("aten.randn") == 1
    assert rank.held["parameters"] == 2**20
    assert answer.doubts[0] == f"rank 0's steps are not steady: {FIRST}"


@pytest.mark.slow
def test_a_gan_is_steady(written):
    answer = ScriptRecording(command=[str(written(GAN, "gan.py"))], ranks=1).ask()
    assert answer.roles[0].unsteady == ""
    assert "a step is 3 optimizer steps" in answer.notes
    (rank,) = answer.job.recorded
    names = [rank.actions[one.action].name for one in rank.entries]
    assert names.count("aten.randn") == 5

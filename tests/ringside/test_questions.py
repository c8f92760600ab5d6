"""A question's fields are its options everywhere: on the command line, in Python and in JSON."""

import importlib
import json
import math
from contextlib import suppress
from dataclasses import MISSING, dataclass
from pathlib import Path

import pytest
import typer

import ringside as package
from ringside.cli import commands
from ringside.commands.simulate import command as simulate
from ringside.sim.questions import collective_time
from ringside.sim.questions.collective_time import CollectiveTime
from ringside.sim.questions.question import Question, QuestionError, option, option_of, options_of
from ringside.studies.inputs import rows_of
from ringside.studies.study import made

QUESTIONS = [
    one for name in package.__all__ if isinstance(one := getattr(package, name), type)
    and issubclass(one, Question)
]  # fmt: skip
FILLED = {
    "collective": "all_reduce", "cluster": "star:4", "model": "resnet50", "files": ["a.log"],
    "what": "all_reduce", "ranks": 2, "command": [__file__], "file": "a.py",
}  # fmt: skip
REQUIRED = {
    question.__name__: {
        one.name: FILLED[one.name] for one in options_of(question)
        if one.default is MISSING and one.default_factory is MISSING
    }
    for question in QUESTIONS
}  # fmt: skip
"""What each question cannot be asked without."""
REQUIRED["ProgramTime"]["file"] = "a.py"  # or jobs
REQUIRED["StepTime"]["model"] = FILLED["model"]  # or megatron


def test_there_are_questions():
    assert len(QUESTIONS) >= 9


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.__name__)
def test_every_field_is_an_option_of_the_same_name(question):
    name = question.schema.partition("-")[0]  # expect-gate, program-hang, train-search
    command = typer.main.get_command(commands({name})).commands[name]
    params = {param.name: param for param in command.params}
    for one in options_of(question):
        how, param = option_of(one), params[one.name]
        assert how.help.strip()
        assert param.help == how.help
        if not how.is_argument:
            assert f"--{one.name.replace('_', '-')}" in param.opts


def test_every_question_is_documented():
    docs = Path(__file__).parents[2] / "docs"
    page, reference = ((docs / name).read_text(encoding="utf-8") for name in ("api.md", "reference/api.md"))
    for question in QUESTIONS:
        assert question.__doc__
        assert f"| `{question.__name__}` |" in page
        assert f"::: {question.__module__}.{question.__name__}\n" in reference


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.__name__)
def test_every_field_stands_in_the_inputs_in_plain_values(question):
    inputs = question(**REQUIRED[question.__name__]).inputs()
    assert set(inputs) == {one.name for one in options_of(question)}
    assert json.loads(json.dumps(inputs)) == inputs


@pytest.mark.parametrize(
    ("question", "line"),
    [
        (
            {
                "collective": "all_reduce",
                "cluster": "dgx-h100:2",
                "size": "64M",
                "settings": {"nic": "25GB/s"},
            },
            "simulate all_reduce --cluster dgx-h100:2 --size 64M --set nic=25GB/s",
        ),
        (
            {"collective": "all_to_all", "cluster": "star", "nodes": (2, 4), "size": [4096, 2**20]},
            "simulate all_to_all --cluster star --nodes 2,4 --size 4K,1M",
        ),
    ],
)
def test_python_and_the_command_line_say_the_same(json_of, question, line):
    said, answer = json_of(*line.split()), package.CollectiveTime(**question).ask()
    assert said["rows"] == json.loads(json.dumps(answer.rows))
    assert said["inputs"] == json.loads(json.dumps(answer.inputs))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("ranks", 2.5, "`ranks` 2.5; write a whole number"),
        ("ranks", True, "`ranks` True; write a whole number"),
        ("factor", 1, "`factor` 1; write 2 or more"),
        ("size", -4, "`size` -4; write whole numbers of 0 or more"),
        ("size", [], "`size` []; write whole numbers"),
        ("size", [1.5], "`size` [1.5]; write whole numbers"),
        ("begin", -1, "`begin` -1; write 0 or more"),
        ("nodes", [0], "`nodes` [0]; write whole numbers of 1 or more"),
        ("dtype", 4, "`dtype` 4; write a text that is not empty"),
        ("begin", "1G", "`begin` 1 GiB is more than `end` 128 MiB"),
    ],
)
def test_errors_name_fields_in_python(field, value, says):
    with pytest.raises(QuestionError) as error:
        package.CollectiveTime(**REQUIRED["CollectiveTime"] | {field: value})
    assert str(error.value).startswith(says)


def test_the_same_errors_name_options_on_the_command_line(ringside):
    code, _, err = ringside(*"simulate all_reduce --cluster star:4 -b 1G".split())
    assert (code, err.split(";")[0]) == (2, "ringside: --begin 1 GiB is more than --end 128 MiB")


def test_a_question_of_text_is_the_question_of_its_values():
    of = REQUIRED["CollectiveTime"]
    sizes = ["1M", 2**20, [2**20], ["1M"], (2**20,)]
    assert len({repr(package.CollectiveTime(**of, size=size)) for size in sizes}) == 1


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.__name__)
def test_no_value_of_a_field_ends_in_a_defect(question):
    strange = (None, [], {}, -1, math.nan, object(), "", "x", True, b"y", [None], {"a": 1}, (1, 2), 2**70)
    for one in options_of(question):
        for value in strange:
            with suppress(ValueError):  # whose text says what to write
                question(**REQUIRED[question.__name__] | {one.name: value})


@dataclass(frozen=True, kw_only=True)
class ScaledTime(CollectiveTime):
    """A question with one option more."""

    scale: int = option("Multiply every size.", default=1, minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sizes", [size * self.scale for size in self.sizes])


@pytest.fixture
def one_option_more(monkeypatch):
    """Let `simulate` ask the question with one option more."""
    with monkeypatch.context() as changed:
        changed.setattr(collective_time, "CollectiveTime", ScaledTime)
        changed.setattr(package, "CollectiveTime", ScaledTime)
        importlib.reload(simulate)
        yield
    importlib.reload(simulate)


def test_a_new_option_is_one_field(ringside, one_option_more):
    line = "simulate all_reduce --cluster star:4 --algorithm ring --json --size"
    _, out, _ = ringside(*line.split(), "2M")
    (expected,) = json.loads(out)["rows"]

    assert "Multiply every size." in ringside("simulate", "--help")[1]
    _, out, _ = ringside(*line.split(), "1M", "--scale", "2")
    answer = json.loads(out)
    assert (answer["rows"], answer["inputs"]["scale"]) == ([expected], 2)
    assert ringside(*line.split(), "1M", "--scale", "0")[0] == 2

    options = {"collective": "all_reduce", "cluster": "star:4", "algorithm": "ring", "size": "1M"}
    assert list(package.CollectiveTime(**options, scale=2).ask().rows) == [expected]

    study = made({"ask": "simulate", "options": options, "grid": {"scale": [1, 2]}}, "study")
    rows = rows_of(study.query, [*study.points()])
    assert [row["scale"] for row in rows] == ["1", "2"]
    assert rows[1]["time_s"] == expected["time_s"] != rows[0]["time_s"]

"""The explorer's screens: their controls, and the questions that a state of these asks.

A state is the texts of a screen's controls by name, as they stand in its address.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from functools import partial

from ringside.serve.spelling import command_line, parsed, python_code
from ringside.sim.algorithms import ALGORITHMS
from ringside.sim.collective import KINDS
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.questions.algorithm_choice import AlgorithmChoice
from ringside.sim.questions.collective_time import CollectiveTime
from ringside.sim.questions.question import Question, options_of
from ringside.sim.training.pipeline.schedules import SCHEDULES
from ringside.sim.training.strategies import STRATEGIES
from ringside.sim.workload.decoder import CHECKPOINTING, DECODERS
from ringside.sim.workload.models import MODELS
from ringside.topologies.catalogue import MAKERS, settings
from ringside.validation.questions.step_time import StepTime
from ringside.validation.questions.what_if import WhatIf

State = Mapping[str, str]
Texts = dict[str, list[str]]

_OF_MAP = {"nodes": ["1,2,4,8,16"], "factor": ["4"]}
"""The numbers of machines on the map of the fastest algorithms, and the factor between its sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One control: a choice of ``options``, a text with suggestions, a number, or a switch."""

    name: str
    label: str
    kind: str = "text"
    options: tuple[str, ...] = ()
    start: str = ""
    hint: str = ""
    low: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """A page of the explorer: controls, and the question of each of its views."""

    title: str
    controls: tuple[Control, ...]
    questions: Mapping[str, Callable[[State], tuple[type[Question], Texts]]]
    """By view, the question's class and its fields' texts."""
    outputs: Mapping[str, str]
    """By view, the option of the command line that writes what it shows."""

    def spelled(self, view: str, state: State) -> dict[str, str]:
        """Return a view's question as a command line and as Python; raise ValueError for invalid options."""
        kind, texts = self.questions[view](state)
        command = f"{command_line(kind, texts)} {self.outputs.get(view, '')}".rstrip()
        return {"command": command, "python": python_code(kind, texts)}

    def start(self) -> dict[str, str]:
        """Return the state of a new page."""
        return {one.name: one.start for one in self.controls}


def _settings(state: State) -> list[str]:
    """Return the changed figures of the cluster: its cards or links, and its fabric."""
    known = settings(state["cluster"]) if state["cluster"] in MAKERS else {}
    changes = []
    if nic := state.get("nic"):
        changes.append(f"{'nic' if 'nic' in known or not known else 'bandwidth'}={nic}")
    if over := state.get("oversubscription"):
        is_machine = "oversubscription" not in known and "fabric=" not in state.get("more", "")
        changes += ["fabric=fat-tree"] if is_machine else []
        changes.append(f"oversubscription={over}")
    return changes


def _of_cluster(kind: type[Question], state: State, texts: Texts, *, counted: bool = True) -> Texts:
    """Return the fields with those of the cluster and of the control of further options."""
    nodes = state.get("nodes", "")
    cluster = f"{state['cluster']}:{nodes}" if counted and nodes else state["cluster"]
    required = {one.name for one in options_of(kind) if one.default is MISSING}
    fields = texts | {"cluster": [cluster], "settings": _settings(state)}
    for name, given in parsed(kind, state.get("more", "")).items():
        fields[name] = fields.get(name, []) + given if name == "settings" else given
    return {name: given for name, given in fields.items() if given and (given != [""] or name in required)}


def _collective(kind: type[Question], names: tuple[str, ...], state: State) -> tuple[type[Question], Texts]:
    texts = {name: [state.get(name, "")] for name in names}
    return kind, _of_cluster(kind, state, texts, counted=kind is not AlgorithmChoice)


_OF_TIME = ("collective", "size", "library", "algorithm")


def _time(state: State) -> tuple[type[Question], Texts]:
    return _collective(CollectiveTime, _OF_TIME, state)


def _messages(state: State) -> tuple[type[Question], Texts]:
    """Return the question whose answer has single messages, of the last size."""
    kind, texts = _collective(CollectiveTime, _OF_TIME, _of_one_size(state))
    return kind, texts | {"engine": ["simpy"]}


def _of_one_size(state: State) -> State:
    """Return the state with the last of several sizes."""
    return {**state, "size": state.get("size", "").rpartition(",")[2]}


def _limits(state: State) -> tuple[type[Question], Texts]:
    names = ("size", "library", "algorithm")
    kind, texts = _collective(WhatIf, names, {**_of_one_size(state), "more": _kept(WhatIf, state)})
    return kind, {"what": [state["collective"]], **texts}


def _map(state: State) -> tuple[type[Question], Texts]:
    more = {**state, "more": _kept(AlgorithmChoice, state)}
    kind, texts = _collective(AlgorithmChoice, ("collective", "library"), more)
    return kind, texts | _OF_MAP


def _kept(kind: type[Question], state: State) -> str:
    """Return the further options if the question accepts them, else none."""
    more = state.get("more", "")
    try:
        parsed(kind, more)
    except ValueError:
        return ""
    return more


_LAYOUT = (
    *("model", "strategy", "tp", "pp", "batch", "micro_batch", "schedule", "stack", "checkpointing"),
    "sequence_parallel",
)


def _step(names: tuple[str, ...], state: State) -> tuple[type[Question], Texts]:
    texts = {name: [state[name]] for name in names if state.get(name, "")}
    return StepTime, _of_cluster(StepTime, state, texts)


_CLUSTER = Control(
    name="cluster", label="Cluster", options=tuple(MAKERS), start="dgx-h100", hint="a name, or a file"
)
_NODES = Control(name="nodes", label="Machines", kind="number", start="2")
_NIC = Control(
    name="nic", label="NIC or link rate", options=("100Gb/s", "200Gb/s", "400Gb/s", "800Gb/s"),
    hint="the cluster's own",
)  # fmt: skip
_OVERSUBSCRIPTION = Control(
    name="oversubscription", label="Oversubscription", options=("1", "2", "4", "8"), hint="none"
)
_MORE = Control(name="more", label="Other options", hint="as on the command line: --set latency=2us")

COLLECTIVE = Screen(
    title="Collectives",
    controls=(
        Control(name="collective", label="Collective", kind="choice", options=tuple(KINDS),
                start="all_reduce"),
        _CLUSTER,
        _NODES,
        Control(name="size", label="Size", start="64M", hint="64M, or several: 1M,64M",
                options=tuple(f"{4**n}{unit}" for unit in "KMG" for n in range(5) if unit != "G" or n < 2)),
        Control(name="algorithm", label="Algorithm", options=("auto", *ALGORITHMS, "ring,tree"),
                hint="auto, ring, ring,tree, ^ring"),
        Control(name="library", label="Library", kind="choice", options=("", *LIBRARIES)),
        _NIC,
        _OVERSUBSCRIPTION,
        _MORE,
    ),
    questions={
        "answer": _time, "limits": _limits, "map": _map, "timeline": _messages, "animation": _messages,
    },
    outputs={
        "map": "--plot map.svg", "timeline": "--timeline timeline.svg",
        "animation": "--animate animation.html",
    },
)  # fmt: skip

TRAINING = Screen(
    title="Training",
    controls=(
        Control(name="model", label="Model", options=(*DECODERS, *MODELS), start="llama3-8b:8192",
                hint="NAME[:SIZE], or a file"),
        _CLUSTER,
        _NODES,
        Control(name="strategy", label="Data-parallel ranks", kind="choice", options=("", *STRATEGIES)),
        Control(name="tp", label="Tensor-parallel ranks (TP)", kind="number", start="2"),
        Control(name="pp", label="Pipeline stages (PP)", kind="number", start="4"),
        Control(name="batch", label="Samples of a replica", kind="number", start="8"),
        Control(name="micro_batch", label="Micro-batch", kind="number", start="1"),
        Control(name="schedule", label="Pipeline schedule", kind="choice", options=("", *SCHEDULES)),
        Control(name="stack", label="Stack", hint="by strategy",
                options=("te", "megatron", "eager", "transformers", "compile")),
        Control(name="checkpointing", label="Checkpointing", kind="choice", options=CHECKPOINTING,
                start="none"),
        Control(name="sequence_parallel", label="Sequence parallelism", kind="switch"),
        _NIC,
        _OVERSUBSCRIPTION,
        _MORE,
    ),
    questions=dict.fromkeys(("answer", "timeline", "animation"), partial(_step, _LAYOUT)),
    outputs={"timeline": "--plot step.svg", "animation": "--animate animation.html"},
)  # fmt: skip

RECORDED = Screen(
    title="Recorded job",
    controls=(
        Control(name="model", label="Recorded job", hint="a file of ringside record", start="job.json"),
        _CLUSTER,
        _NODES,
        _NIC,
        _MORE,
    ),
    questions=dict.fromkeys(("answer", "timeline"), partial(_step, ("model",))),
    outputs={"timeline": "--plot step.svg"},
)  # fmt: skip

SCREENS = {"collective": COLLECTIVE, "training": TRAINING, "recorded": RECORDED}

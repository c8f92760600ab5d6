"""A training on a cluster by its own options, or as a launch script of Megatron-LM starts it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringside.sim.questions.question import QuestionError, option
from ringside.sim.workload.decoder import Decoder
from ringside.validation.megatron.arguments import Arguments, read_arguments
from ringside.validation.megatron.training import launched
from ringside.validation.questions.models import measured_rate
from ringside.validation.questions.training import MODEL, TrainingOnCluster


@dataclass(frozen=True, kw_only=True)
class LaunchedTraining(TrainingOnCluster):
    """A training on a cluster; of ``megatron``'s file are the model and every option that it has settled for.

    ``remarks`` name the file's arguments that no option says.
    """

    model: str | Decoder = option(MODEL, metavar="NAME[:SIZE]|FILE", default="", default_text="by --megatron")
    megatron: Path | None = option(
        "Launch script of Megatron-LM, or YAML with its MODEL_ARGS.", metavar="FILE", default=None
    )
    remarks: Sequence[str] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.megatron is None:
            if self.model == "":
                raise QuestionError("`model` is missing; write a text, for example llama3-8b, or `megatron`")
            super().__post_init__()
            return
        given = {name: getattr(self, name) for name in ("model", "seq", "measured")}
        for name in given:  # which are read with the model that the file has
            object.__setattr__(self, name, "launched" if name == "model" else None)
        super().__post_init__()
        self._launch(given, read_arguments(self.megatron))

    def _launch(self, given: dict[str, Any], arguments: Arguments) -> None:
        """Take the file's model and options; raise QuestionError for others beside them."""
        ranks = self.bound().ranks if self.ranks is None else self.ranks
        try:
            launch = launched(arguments, ranks)
        except ValueError as error:
            raise QuestionError(f"{self.megatron}: {error}") from None
        own = given | {name: getattr(self, name) for name in self.changed(*launch.options)}
        measured = own.pop("measured")
        settled = {**launch.options, "model": launch.decoder, "seq": launch.decoder.sequence}
        for name, value in own.items():
            if value not in ("", None) and str(value) != str(settled[name]):
                raise QuestionError(
                    f"`{name}` {value}, and {self.megatron} has {settled[name]}; leave `{name}` out, or "
                    "change the file"
                )
        if isinstance(measured, str):
            measured = measured_rate(measured, launch.decoder)
        settled |= {"seq": None, "measured": measured, "remarks": launch.remarks}
        for name, value in settled.items():
            object.__setattr__(self, name, value)

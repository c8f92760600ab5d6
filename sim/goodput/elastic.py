"""Stage times of an elastic run on a real machine."""

import json
from dataclasses import asdict, dataclass

SCHEMA = "ringside.elastic/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """One restart by torchrun, in seconds: from the kill until training continues.

    The agent detects it and stops the other ranks, meets the other agents, starts processes; these import
    torch, join their process group and read the checkpoint.
    """

    detect_s: float
    stop_s: float
    rendezvous_s: float
    process_s: float
    import_s: float
    init_s: float
    load_s: float

    @property
    def whole_s(self) -> float:
        """All stages together."""
        return float(sum(asdict(self).values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticRun:
    """One complete run, with a checkpoint every ``interval`` steps, and its ``kills``.

    A kill is seconds after its attempt began to train, and the rank. ``steps_s`` are all steps, repeated ones
    too; ``kept_s`` is the total time of steps that were not repeated; ``saves_s`` are checkpoints; ``wall_s``
    runs from the first rank's first moment to the end of the last step.
    """

    ranks: int
    interval: int
    steps: int
    checkpoint_bytes: int
    kills: tuple[tuple[float, int], ...]
    wall_s: float
    steps_s: tuple[float, ...]
    kept_s: float
    saves_s: tuple[float, ...]
    first_start_s: float
    restarts: tuple[Restarted, ...]
    fingerprint: dict[str, str]

    @property
    def goodput(self) -> float:
        """The share of the time in steps that counted."""
        return self.kept_s / self.wall_s

    @property
    def redone(self) -> int:
        """The number of repeated steps."""
        return len(self.steps_s) - self.steps

    def line(self) -> str:
        """Return the run as one line of JSON."""
        derived = {"goodput": self.goodput, "redone": self.redone}
        return json.dumps({"schema": SCHEMA, **asdict(self), **derived}) + "\n"

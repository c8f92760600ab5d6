"""Steps in 8 bits from the step of the same training in bfloat16, on 8 to 128 H100.

Rows of `ringside.validation.published.training.dgxc` that are measured in both, on the fewest GPUs of each
series. `train` predicts both by kernels, with nothing known; what the step in bfloat16 took longer than its
prediction, that in 8 bits is taken to take too. Products, their casts, and all that stays in 16 bits decide
how much is won. The naive rule is half the time.
"""

from collections.abc import Iterator

from ringside.validation.published.training.dgxc import DgxcStep, steps
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

WIDE, NARROW = "bf16", "fp8"


def pairs() -> Iterator[tuple[DgxcStep, DgxcStep]]:
    """Yield each training's step in bfloat16, and in 8 bits."""
    both: dict[DgxcStep, dict[str, DgxcStep]] = {}
    for row in steps():
        if row.is_modelled:
            both.setdefault(row._replace(precision="", step_s=0.0), {})[row.precision] = row
    fewest: dict[DgxcStep, DgxcStep] = {}
    for training, rows in both.items():
        if rows.keys() >= {WIDE, NARROW}:
            fewest.setdefault(training._replace(gpus=0, batch=0), training)  # a series is in order of GPUs
    for training in fewest.values():
        yield both[training][WIDE], both[training][NARROW]


def judged() -> list[JudgedRow]:
    """Return the steps in 8 bits."""
    return [
        JudgedRow(
            f"{wide.release} {wide.framework} {wide.model} {wide.tuning}".strip(), f"on {wide.gpus}",
            narrow.step_s, narrow.predicted_s(None) * wide.step_s / wide.predicted_s(None), wide.step_s / 2,
            wide.framework,
        )
        for wide, narrow in pairs()
    ]  # fmt: skip


TABLE = JudgedTable(
    name="fp8",
    title="Steps in 8 bits from those in bfloat16, on 8 to 128 H100",
    source="github.com/NVIDIA/dgxc-benchmarking v24.11.1 to v25.04",
    sets="the same training in bfloat16",
    rule="half the time",
    judged=judged,
)

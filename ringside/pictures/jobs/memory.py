"""A step under a layout: the memory that each stage's ranks have allocated, over time."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from ringside.pictures.style import DURATIONS, STYLE, save
from ringside.sim.training.memory.room import MemoryFit
from ringside.sim.training.step import StagedStep

GIB = 2**30
NAMED = 8
"""The number of stages whose curves remain distinguishable; of more the first and the last are named."""


def draw_memory(step: StagedStep, fit: MemoryFit | None, path: Path) -> None:
    """Draw a curve per stage, from dark for the first to light for the last, below the GPU's memory."""
    stages = step.stages
    shades = mpl.colormaps["viridis"]
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10, 4))
        axes = figure.subplots()
        for place, stage in enumerate(stages):
            moments, nbytes = zip(*stage.memory.curve, (step.step_s, stage.memory.curve[-1][1]), strict=True)
            named = len(stages) <= NAMED or place in (0, len(stages) - 1)
            axes.plot(
                moments, [each / GIB for each in nbytes], drawstyle="steps-post", linewidth=1.2,
                color=shades(0.85 * place / max(len(stages) - 1, 1)),
                label=(f"stage {place}" if len(stages) > 1 else "every rank") if named else None,
            )  # fmt: skip
        limits = () if fit is None else (
            (fit.memory, "-", "memory of the GPU"), (fit.memory - fit.reserve, ":", "less the reserve")
        )  # fmt: skip
        for nbytes_, style, label in limits:
            axes.axhline(nbytes_ / GIB, color="#67000d", linestyle=style, linewidth=1.2, label=label)
        axes.set_xlim(0, step.step_s)
        axes.set_ylim(0, None)
        axes.xaxis.set_major_formatter(DURATIONS)
        axes.set_xlabel("time from the step's start")
        axes.set_ylabel("allocated (GiB)")
        title = f"{step.workload} on {step.ranks} ranks: {step.peak_nbytes / GIB:.1f} GiB at the peak"
        axes.set_title(title, loc="left", fontsize=10)
        figure.legend(loc="outside right upper", fontsize=8)
        save(figure, path)

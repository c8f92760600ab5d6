"""``ringside train`` with what disturbs a step: how long it takes in most draws, and who waits."""

from ringside.disturbed import Disturbed, drawn_program
from ringside.sim.disturbance import Disturbance
from ringside.sim.disturbance.networks import libraries_under, library_under
from ringside.sim.libraries.library import Library
from ringside.sim.program.groups import process_group
from ringside.sim.program.libraries import Libraries
from ringside.sim.questions.disturbances import Disturbances
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.simulate import simulate_disturbed
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.simulate import simulate_parallel_disturbed
from ringside.validation.questions.trained import Trained


def disturbed_step(
    words: Disturbances,
    disturbance: Disturbance,
    what: Trained,
    library: Library,
    ddp: DataParallel,
    undisturbed_s: float,
) -> Disturbed:
    """Draws of a step of DistributedDataParallel."""
    disturbance.check_ranks(library.ranks)
    work, costs = what.sized(None), what.costs_on(library)
    group = process_group(library_under(library, disturbance))
    return drawn_program(
        words, disturbance, lambda draw: simulate_disturbed(work, group, ddp, costs, draw), undisturbed_s
    )


def disturbed_layout(
    words: Disturbances,
    disturbance: Disturbance,
    job: ParallelJob,
    libraries: Libraries,
    undisturbed_s: float,
) -> Disturbed:
    """Draws of a step under a layout."""
    disturbance.check_ranks(libraries.ranks)
    there = libraries_under(libraries, disturbance)
    return drawn_program(
        words, disturbance, lambda draw: simulate_parallel_disturbed(job, there, draw), undisturbed_s
    )

"""``python -m ringside.validation.published.mpi``: errors on held-out rows, and the band's growth."""

from collections.abc import Sequence

from ringside.sim.libraries.mpi.measured import PER_DOUBLING
from ringside.validation.mpi.growth import growth
from ringside.validation.mpi.scorecard import TIED, Score, questions, score
from ringside.validation.published.mpi import published_mpi

HEAD = (
    f"{'question':58} {'rows fitted':>11} {'median':>7} | {'judged':>6} {'median':>7} {'p90':>6} "
    f"{'in band':>7} {'winner':>9} {'or tied':>9}"
)


def main() -> None:
    """Print a line per question, then the growth of the band per machine."""
    records = published_mpi()
    print("\n".join(table([score(question) for question in questions(records)])))
    for one in growth(records):
        print(
            f"{one.machine}: of {one.rows} rows beyond the fitted nodes 80% lie in a band that grows by "
            f"{one.per_doubling:.2f} per doubling; with {PER_DOUBLING:.2f}, {one.covered:.0%} do"
        )


def table(scores: Sequence[Score]) -> list[str]:
    """Return the scores as lines: fitted on the left of the bar, held out on the right."""
    lines = [HEAD]
    for one in scores:
        cells = [f"{part:>3} of {one.cells:<2}" if one.cells else "-" for part in (one.won, one.near)]
        lines.append(
            f"{one.name:58} {one.fitted:>11} {one.fit_error:>7.1%} | {one.judged:>6} "
            f"{one.median_error:>7.1%} {one.p90_error:>6.0%} {one.covered:>7.0%} {cells[0]:>9} {cells[1]:>9}"
        )
    return [*lines, f"tied: at most {TIED:.0%} slower than the fastest measured"]


if __name__ == "__main__":
    main()

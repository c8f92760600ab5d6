"""``python -m ringside.validation.published.mpi``: errors on held-out rows, and the band's growth."""

from collections.abc import Sequence

from ringside.sim.libraries.mpi.measured import PER_DOUBLING
from ringside.validation.mpi.growth import growth
from ringside.validation.published.mpi import published_mpi
from ringside.validation.scorecard.judged import TableResult, result, score
from ringside.validation.scorecard.mpi import TIED, mpi_tables

HEAD = (
    f"{'question':58} {'rows fitted':>11} {'median':>7} | {'judged':>6} {'median':>7} {'p90':>6} "
    f"{'in band':>7} {'winner':>9} {'or tied':>9}"
)


def main() -> None:
    """Print a line per split, then the growth of the band per machine."""
    print("\n".join(lines([result(table) for table in mpi_tables()])))
    for one in growth(published_mpi()):
        print(
            f"{one.machine}: 80% of {one.rows} rows beyond the fitted nodes lie in a band that grows by "
            f"{one.per_doubling:.2f} per doubling; {one.covered:.0%} with {PER_DOUBLING:.2f}"
        )


def lines(results: Sequence[TableResult]) -> list[str]:
    """Return the results as lines: fitted on the left of the bar, held out on the right."""
    shown = [HEAD]
    for one in results:
        errors = score("", one.table.name, one.rows).errors
        cells = [f"{count.right:>3} of {count.of:<2}" if count.of else "-" for count in one.counted]
        shown.append(
            f"{one.table.name:58} {one.fitted.rows:>11} {one.fitted.median:>7.1%} | {errors.rows:>6} "
            f"{errors.median:>7.1%} {errors.p90:>6.0%} {errors.inside:>7.0%} {cells[0]:>9} {cells[1]:>9}"
        )
    return [*shown, f"tied: at most {TIED:.0%} slower than the fastest measured"]


if __name__ == "__main__":
    main()

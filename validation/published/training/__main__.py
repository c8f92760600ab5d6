"""``python -m ringside.validation.published.training``: published trainings row by row beside predictions.

Name tables to print those alone; `ringside scorecard training` sums them up.
"""

import sys

from ringside.validation.scorecard.judged import lines, result
from ringside.validation.scorecard.training import training_tables


def main(names: list[str]) -> None:
    """Print the tables of these names, all without any."""
    try:
        tables = training_tables(names)
    except ValueError as error:
        sys.exit(str(error))
    for table in tables:
        print("\n".join(lines(result(table))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

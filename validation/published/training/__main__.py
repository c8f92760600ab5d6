"""``python -m ringside.validation.published.training``: published trainings row by row beside predictions.

Name tables to print those alone; `ringside scorecard training` sums them up.
"""

import sys

from ringside.validation.published.training.judging.judged import lines
from ringside.validation.published.training.tables import find_tables


def main(names: list[str]) -> None:
    """Print the tables of these names, all without any."""
    try:
        tables = find_tables(names)
    except ValueError as error:
        sys.exit(str(error))
    for table in tables:
        print("\n".join(lines(table, table.judged())), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

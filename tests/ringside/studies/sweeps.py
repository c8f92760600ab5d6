"""What a study keeps."""

from pathlib import Path

import pandas as pd


def rows(folder):
    """All rows but for the clock, by point, from files that each are whole."""
    parts = [pd.read_parquet(part) for part in sorted(Path(folder).rglob("*.parquet"))]
    found = pd.concat(parts).sort_values("point", ignore_index=True)
    return found.drop(columns="elapsed_s")

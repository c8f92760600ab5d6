"""Published rows in files beside this one: CSV, a row a line."""

import csv
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

Row = TypeVar("Row")


def read_rows(kind: type[Row], file: str) -> list[Row]:
    """Read the columns that are fields of this kind of row; an empty number is 0, or NaN for a float."""
    fields = get_type_hints(kind)
    with (Path(__file__).parent / file).open(encoding="utf-8", newline="") as lines:
        return [
            kind(**{name: _value(row[name], fields[name]) for name in fields})
            for row in csv.DictReader(lines)
        ]


def _value(text: str, hint: Any) -> Any:
    if hint is bool:
        return text == "1"
    return hint(text or "nan") if hint is float else hint(text or 0) if hint is int else text

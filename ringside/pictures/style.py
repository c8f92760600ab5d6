"""Shared by all pictures: their style, and how they are saved."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ringside.topologies.disk import write_file

if TYPE_CHECKING:  # type checkers need not wait for matplotlib
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("house.mplstyle")


def save(figure: "Figure", path: Path) -> None:
    """Write the picture, atomically, in the format of the name's ending."""
    drawn = BytesIO()
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(drawn, format=path.suffix.removeprefix("."), metadata=metadata)
    write_file(path, drawn.getvalue())

"""What all pictures have in common: their style, and how they come onto the disk."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ringside.topologies.disk import write_file

if TYPE_CHECKING:  # whoever checks a name need not wait for matplotlib
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("house.mplstyle")
FORMATS = (".svg", ".png", ".pdf")


def check_format(path: Path | None) -> None:
    """Refuse a picture that could not be drawn, before any work is done for it."""
    if path and path.suffix not in FORMATS:
        raise ValueError(f"{path}: no picture format; write a name that ends in {', '.join(FORMATS)}")


def save(figure: "Figure", path: Path) -> None:
    """Write the picture, whole or not at all, in the format that the name ends in."""
    check_format(path)
    drawn = BytesIO()
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(drawn, format=path.suffix.removeprefix("."), metadata=metadata)
    write_file(path, drawn.getvalue())

"""What all pictures have in common: their style, and how they come onto the disk."""

from pathlib import Path

from matplotlib.figure import Figure

from sim.record import check_writable

STYLE = Path(__file__).with_name("house.mplstyle")
FORMATS = (".svg", ".png", ".pdf")


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn, before any work is done for it."""
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: no picture format; write a name that ends in {', '.join(FORMATS)}")
    check_writable(path)


def save(figure: Figure, path: Path) -> None:
    """Write the picture, whole or not at all, in the format that the name ends in."""
    check_picture(path)
    beside = path.with_name(f".{path.stem}.part{path.suffix}")
    figure.savefig(beside, metadata={"Date": None} if path.suffix == ".svg" else None)
    beside.replace(path)

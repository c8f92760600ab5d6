"""What ``ringside simulate`` was asked for, and how it is understood."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sim.collective import kind_of
from sim.libraries.nccl.cluster import is_machine

LIBRARIES = ("ideal", "gloo", "nccl")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, in the words of the command line."""

    collective: str
    cluster: str
    settings: tuple[str, ...]
    sweep: tuple[str, str, int, str | None]
    ranks: int | None
    library: str | None
    algorithm: str
    protocol: str
    engine: str
    network: str
    nccl_version: str | None
    nccl_graph: Path | None
    dtype: str
    redop: str
    calibration: str
    trace: Path | None


def library_of(asked: str | None, cluster: str) -> str:
    """What was asked for; if nothing was, NCCL on machines that it knows, else the textbook."""
    if asked is not None:
        if asked not in LIBRARIES:
            raise ValueError(f"{asked!r} is no known library; write one of {', '.join(LIBRARIES)}")
        return asked
    return "nccl" if is_machine(cluster) else "ideal"


def refuse_nccl_options(library: str, **options: object) -> None:
    """Refuse what only NCCL understands, where it was given and another library is asked."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if given:
        raise ValueError(f"{library} knows no {', '.join(given)}; leave it out, or write --library nccl")


def inputs_of(request: Request, library: str, count: int) -> dict[str, Any]:
    """What was asked for, as understood."""
    ours = {"collective": kind_of(request.collective), "library": library, "ranks": count}
    rest = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(request).items()}
    del rest["sweep"], rest["trace"]
    return rest | ours

"""``ringside simulate --links``: which links a collective loads, and what waits for them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringside import console
from ringside.sim.libraries.library import Library, Prediction
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.network.load import Load, counted
from ringside.topologies.units import format_size

HEADS = (
    *(("link", ""), ("bytes", "(B)"), ("busy", "(%)"), ("messages", "")),
    *(("wait mean", "(us)"), ("wait max", "(us)")),
)


@dataclass(frozen=True, slots=True)
class Links:
    """The links of one prediction; none where no network was simulated, with what to ask for instead."""

    prediction: Prediction
    load: Load | None
    note: str


def links_of(library: Library, fresh: Callable[[], Library], prediction: Prediction, engine: str) -> Links:
    """Simulate once more what a library answered, on a fresh one that knows no answers yet, and count."""
    collective = prediction.collective
    if prediction.engine != "simpy":
        said = f"engine {prediction.engine} counts no links; add --engine simpy to see them"
        return Links(prediction, None, said)
    with counted() as loads:
        fresh().time(collective, library.choose(collective), engine)
    load = max(loads, key=lambda one: one.time_s, default=None)
    if load is None or not load.links():
        return Links(prediction, load, "no link carries anything")
    slowest = f"of {len(loads)} kinds of channels the slowest, each on wires of its own"
    return Links(prediction, load, slowest if len(loads) != 1 else "")


def content_of(links: Links, top: int) -> dict[str, Any]:
    """As JSON has it."""
    rows = [asdict(one) for one in links.load.links()[:top]] if links.load else None
    return {"size_bytes": links.prediction.collective.nbytes, "note": links.note, "links": rows}


def show(links: Links, top: int) -> None:
    """Print the busiest links as a table."""
    comments = [f"busiest links of {named(links.prediction)}"]
    comments += [links.note] if links.note else []
    found = links.load.links() if links.load else []
    if len(found) > top:
        comments.append(f"{top} of {len(found)} links that carry messages; --top says how many")
    rows = [
        (one.link, one.nbytes, one.busy * 100, one.messages, one.wait_mean_s * 1e6, one.wait_max_s * 1e6)
        for one in found[:top]
    ]
    console.print_table(comments, HEADS if rows else (), rows)


def draw(links: Links, library: Library, path: Path) -> None:
    """Draw the library's topology, each cable as its busier direction is."""
    from ringside.pictures.topology import draw_topology

    if links.load is None:
        raise ValueError(f"{path}: {links.note}")
    if not isinstance(library, Scheduled):
        raise ValueError(
            f"{path}: NCCL's channels have wires of their own, which no picture shows; leave it out"
        )
    draw_topology(library.graph, path, busy={one.link: one.busy for one in links.load.links()})


def named(prediction: Prediction) -> str:
    """What was asked, as titles say it: ``ring all_reduce of 1 MiB on 8 ranks``."""
    collective = prediction.collective
    size = format_size(collective.nbytes)
    return f"{prediction.algorithm} {collective.kind} of {size} on {collective.ranks} ranks"

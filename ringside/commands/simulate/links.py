"""``ringside simulate --links``: the load of each link, and the waits for it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringside import console
from ringside.sim.libraries.library import Library, Prediction
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.network.load import Load, counted
from ringside.sim.questions.collective_time import Predicted
from ringside.topologies.units import format_size

HEADS = (
    *(("link", ""), ("bytes", "(B)"), ("busy", "(%)"), ("messages", "")),
    *(("wait mean", "(us)"), ("wait max", "(us)")),
)


@dataclass(frozen=True, slots=True)
class Links:
    """The links of one prediction, or the reason why there are none."""

    prediction: Prediction
    load: Load | None
    note: str


def links_of(predicted: Predicted) -> Links:
    """Simulate the first prediction again, with an empty cache, and count each link's load."""
    question, library, prediction = predicted.question, predicted.library, predicted.predictions[0]
    collective = prediction.collective
    if prediction.engine != "simpy":
        note = f"engine {prediction.engine} counts no links; add --engine simpy to see them"
        return Links(prediction, None, note)
    with counted() as loads:
        question.bound().time(collective, library.choose(collective), question.engine)
    load = max(loads, key=lambda one: one.time_s, default=None)
    if load is None or not load.links():
        return Links(prediction, load, "no link carries messages")
    slowest = f"the slowest of {len(loads)} kinds of channels, each on separate links"
    return Links(prediction, load, slowest if len(loads) != 1 else "")


def content_of(links: Links, top: int) -> dict[str, Any]:
    """Return the links for JSON."""
    rows = [asdict(one) for one in links.load.links()[:top]] if links.load else None
    return {"size_bytes": links.prediction.collective.nbytes, "note": links.note, "links": rows}


def show(links: Links, top: int) -> None:
    """Print the busiest links as a table."""
    comments = [f"busiest links of {named(links.prediction)}"]
    comments += [links.note] if links.note else []
    carrying = links.load.links() if links.load else []
    if len(carrying) > top:
        comments.append(f"{top} of {len(carrying)} links that carry messages; --top sets the number")
    rows = [
        (one.link, one.nbytes, one.busy * 100, one.messages, one.wait_mean_s * 1e6, one.wait_max_s * 1e6)
        for one in carrying[:top]
    ]
    console.print_table(comments, HEADS if rows else (), rows)


def draw(links: Links, library: Library, path: Path) -> None:
    """Draw the library's topology; color each cable by its busier direction."""
    from ringside.pictures.topology import draw_topology

    if links.load is None:
        raise ValueError(f"{path}: {links.note}")
    if not isinstance(library, Scheduled):
        raise ValueError(
            f"{path}: NCCL's channels have links of their own, which no picture shows; remove it"
        )
    draw_topology(library.graph, path, busy={one.link: one.busy for one in links.load.links()})


def named(prediction: Prediction) -> str:
    """Return a title such as ``ring all_reduce of 1 MiB on 8 ranks``."""
    collective = prediction.collective
    size = format_size(collective.nbytes)
    return f"{prediction.algorithm} {collective.kind} of {size} on {collective.ranks} ranks"

"""Writes the references of commands and of algorithms from the code itself, when the site is built."""

import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer
from typer.cli import get_docs_for_click

from ringside.cli import COMMANDS, commands
from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.predict import predict
from ringside.topologies import star

RANKS, NBYTES = (8, 64), 2**20


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Print the page, then the output of its code; consoles as text, which has no words to paint."""
    markdown = markdown.replace("```console\n", "```text\n")
    written = {"reference/commands.md": _commands, "reference/algorithms.md": _algorithms}
    write = written.get(page.file.src_uri)
    return f"{markdown}\n{write()}" if write else markdown


def _commands() -> str:
    found = typer.main.get_command(commands(COMMANDS))
    return get_docs_for_click(obj=found, ctx=typer.Context(found), name="ringside", title=" ")


def _algorithms() -> str:
    return "\n".join(line for name in ALGORITHMS for line in _algorithm(name))


def _algorithm(name: str) -> Iterator[str]:
    module = next(
        sys.modules[one] for one in sys.modules
        if one.startswith("ringside.sim.algorithms.") and one.endswith(f".{name}")
    )  # fmt: skip
    first, _, rest = (inspect.getdoc(module) or "").partition("\n\n")
    yield from ("", f"## {name}", "", first, "", rest, "")
    heads = (f"{what}, {ranks} ranks" for what in ("messages", "bytes") for ranks in RANKS)
    yield " | ".join(["collective", *heads])
    yield "|".join(["---"] * (1 + 2 * len(RANKS)))
    for kind in ALGORITHMS[name]:
        asked = [Collective(kind, ranks, NBYTES) for ranks in RANKS]
        messages = [str(_messages(name, one)) for one in asked]
        sent = [f"{_sent(name, one):.3g} S" for one in asked]
        yield " | ".join([f"`{kind}`", *messages, *sent])


def _messages(name: str, collective: Collective) -> int:
    """How many messages follow one another: what it takes where each takes a second and bytes nothing."""
    network = star(collective.ranks, bandwidth=1e15, latency=1.0)
    return round(predict(collective, network, algorithm=name, engine="simpy").time_s)


def _sent(name: str, collective: Collective) -> float:
    """Return the most that one rank sends, over the size."""
    sent = Counter[int]()
    for (source, _), nbytes in schedule(name, collective).traffic().items():
        sent[source] += nbytes
    return max(sent.values()) / collective.nbytes

"""The page of an animation: one file that needs no other and no server."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ringside.topologies.disk import write_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture that moves: its answer, what it does and why it takes so long, and its data."""

    title: str
    answer: str
    what: str
    why: Sequence[str]
    scene: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizesTable:
    """Times over sizes; each cell says whether it is the least of its row."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, bool]]]]
    changes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Animation:
    """Panels that move in step with one clock, and what they show in words.

    ``kind`` is ``collective`` or ``pipeline``. ``caption`` describes the picture, ``moments`` are the heads
    and rows of what it shows when, for those who do not see it. ``lesson`` are paragraphs of the page.
    """

    kind: str
    title: str
    headline: str
    caption: str
    panels: Sequence[Panel]
    figures: Sequence[str]
    rows: Sequence[Sequence[str]]
    moments: tuple[Sequence[str], Sequence[Sequence[str]]]
    sizes: SizesTable | None = None
    lesson: Sequence[str] = ()
    notes: Sequence[str] = field(default_factory=list)


def page_of(animation: Animation, command: str) -> str:
    """Return the page's text, with the command line that makes it."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loaders = [PackageLoader("ringside.pictures.animation", "."), PackageLoader("ringside.report", ".")]
    environment = Environment(
        loader=ChoiceLoader(loaders), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    scenes = json.dumps([one.scene for one in animation.panels], separators=(",", ":"))
    return environment.get_template("animation.html").render(
        page=animation, scenes=scenes.replace("<", "\\u003c"), command=command,
        release=version("ringside-sim"),
    )  # fmt: skip


def write_animation(animation: Animation, path: Path) -> None:
    """Write the page, atomically."""
    write_file(path, page_of(animation, shlex.join(["ringside", *sys.argv[1:]])))

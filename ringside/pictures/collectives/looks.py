"""Looks of families of algorithms, the same in every picture and on every page."""

from collections.abc import Mapping
from dataclasses import dataclass

WIDE = 1e4
"""The factor between a logarithmic axis's ends from which marks at 2 and 5 no longer fit."""

_WHITE = (0.0, 0.45, 0.6, 0.25)
"""The shares of white in the shades of a family's colour: of its first member, its second and so on."""


@dataclass(frozen=True, slots=True)
class FamilyLook:
    """Related algorithms: their colour and, for those who see none, their mark, by matplotlib's letter."""

    colour: str
    mark: str
    members: tuple[str, ...]


FAMILIES = {
    "ring": FamilyLook("#0072b2", "o", ("ring", "ring_2d", "neighbor_exchange")),
    "tree": FamilyLook("#e69f00", "s", ("tree", "binomial", "knomial")),
    "double tree": FamilyLook("#a05a00", "D", ("double_binary_tree",)),
    "NVLS": FamilyLook("#009e73", "^", ("nvls", "nvls_tree")),
    "CollNet": FamilyLook("#cc79a7", "v", ("collnet_direct", "collnet_chain")),
    "PAT": FamilyLook("#d55e00", "P", ("pat", "bruck")),
    "direct": FamilyLook("#56b4e9", "X", ("direct", "pairwise")),
    "halving and doubling": FamilyLook(
        "#b5a900", "*", ("halving_doubling", "recursive_doubling", "recursive_halving")
    ),
    "composed": FamilyLook("#4d4d4d", "p", ("hierarchical", "scatter_all_gather", "scatter_all_gather_ring")),
}
"""Mostly Okabe and Ito's colours, safe for the colour-blind; marks tell apart what is alike in grey."""

_OTHERS: tuple[str, ...] = ("#999999", "#6a51a3", "#8c6d31", "#5c6f82", "#b56576")
"""Colours of algorithms of no family: a user's, or a library's own choice."""

_MARKS = (*(family.mark for family in FAMILIES.values()), *"8hd><")


def family_of(algorithm: str) -> FamilyLook | None:
    """Return an algorithm's family; None for a user's, and for those of few libraries."""
    name = algorithm.partition(":")[0]
    return next((family for family in FAMILIES.values() if name in family.members), None)


def colour_of(algorithm: str) -> str:
    """Return the algorithm's colour, its family's, lighter for later members; others share some."""
    return _colours(algorithm)[0]


def looks_of(algorithms: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a mark for each name in a picture; ``algorithms`` has the algorithm of each.

    They are those of the algorithm's family; a second name of an algorithm gets an unused shade and mark.
    """
    looks: dict[str, tuple[str, str]] = {}
    for name, algorithm in algorithms.items():
        family, colours = family_of(algorithm), _colours(algorithm)
        marks = (family.mark, *reversed(_MARKS)) if family else _MARKS[::-1]
        taken = {part for look in looks.values() for part in look}
        looks[name] = (
            next((colour for colour in colours if colour not in taken), colours[0]),
            next((mark for mark in marks if mark not in taken), marks[0]),
        )
    return looks


def _colours(algorithm: str) -> tuple[str, ...]:
    """Return the shades that may show the algorithm, its own first."""
    family = family_of(algorithm)
    if family is None:
        own, shades = sum(algorithm.encode()) % len(_OTHERS), _OTHERS
    else:
        own = family.members.index(algorithm.partition(":")[0])
        shades = tuple(_lighter(family.colour, white) for white in _WHITE)
    return (*shades[own:], *shades[:own])


def _lighter(colour: str, white: float) -> str:
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)

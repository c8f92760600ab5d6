"""Looks of algorithms: one colour a family, and no two alike in one picture."""

from dataclasses import replace
from itertools import combinations

from matplotlib.colors import to_rgb
from matplotlib.markers import MarkerStyle

from ringside.pictures.collectives.looks import FAMILIES, colour_of, family_of, looks_of
from ringside.report.charts import SYMBOLS
from ringside.report.comparison import comparison_figures
from ringside.sim.algorithms import ALGORITHMS
from ringside.validation.compare import Compared
from tests.made_up import record

ALIKE = 0.08
"""The difference of lightness, from 0 to 1, below which two colours are alike in grey."""


def lightness(colour):
    return sum(part * weight for part, weight in zip(to_rgb(colour), (0.299, 0.587, 0.114), strict=True))


def test_every_algorithm_has_a_family_and_the_members_share_its_hue():
    assert all(family_of(name) for name in ALGORITHMS)
    members = [name for family in FAMILIES.values() for name in family.members]
    assert len(set(members)) == len(members) == len({colour_of(name) for name in members})
    for family in FAMILIES.values():
        assert colour_of(family.members[0]) == family.colour
        for name in family.members[1:]:
            assert lightness(colour_of(name)) > lightness(family.colour) + ALIKE
    assert colour_of("knomial:4") == colour_of("knomial")


def test_in_grey_families_differ_by_lightness_or_by_their_mark():
    for one, other in combinations(FAMILIES.values(), 2):
        assert one.mark != other.mark
        assert one.colour != other.colour
    for mark in (mark for _, mark in looks_of({name: name for name in "abcdefghijklmn"}).values()):
        assert MarkerStyle(mark)
        assert mark in SYMBOLS


def test_no_two_curves_of_a_picture_have_one_look():
    ways = {"ring/ll": "ring", "ring/simple": "ring", "tree": "tree", "own": "auto", "mine": "mine.py"}
    looks = looks_of(ways)
    colours, marks = zip(*looks.values(), strict=True)
    assert looks["ring/ll"] == (FAMILIES["ring"].colour, FAMILIES["ring"].mark)
    assert looks["tree"] == (FAMILIES["tree"].colour, FAMILIES["tree"].mark)
    assert len(set(colours)) == len(set(marks)) == len(ways)


def test_a_page_has_the_colours_of_the_pictures():
    made = record(library="gloo", nbytes=2**20, time_s=1e-3)
    rows = [
        Compared(replace(made, algorithm=name), 1.1e-3, 1e-3, 1.2e-3, "fitted")
        for name in ("double_binary_tree", "tree")
    ]
    (figure,) = comparison_figures(rows).values()
    drawn = {trace.name: trace.line.color for trace in figure.data if trace.mode == "lines" and trace.name}
    assert list(drawn.values()) == [colour_of("double_binary_tree"), colour_of("tree")]

"""NCCL's releases: differences of each one's tuner and search from the newest tables.

Read in src/graph/tuning.cc, search.cc and topo.h at the tags v2.10.3, v2.20.3, v2.26, v2.28.9, v2.29.7 and
v2.30.7, and for all-reduce by rings and trees at v2.8.4, v2.18.3, v2.21.5 and v2.23.4; other facts of
these four are the nearest release's. Hopper and Blackwell on a release that
does not know them count as the newest generation that it knows.
"""

import re
from dataclasses import replace
from functools import cache

from ringside.sim.libraries.nccl.constants import V230, Constants, Row, Table

Simple = tuple[float, float, float]
"""An algorithm's microseconds per step with the Simple protocol, over NVLink, PCIe and the network."""


def _with_simple(us: dict[str, dict[str, Row]], **changed: Simple) -> dict[str, dict[str, Row]]:
    """Return latencies of steps with other figures for Simple, by algorithm."""
    return {
        link: of | {name: (*of[name][:2], figures[place]) for name, figures in changed.items()}
        for place, (link, of) in enumerate(us.items())
    }


def _doubled(table: Table) -> Table:
    """Return a table with twice Hopper's figures for Blackwell, as in the first releases with it."""
    a, b, c = table[2]
    return (*table[:3], (2 * a, 2 * b, 2 * c))


def _up_to_hopper(table: Table) -> Table:
    return (*table[:3], table[2])


_OLDER_BLACKWELL = V230.inside | {100: tuple(speed for speed in V230.inside[100] if speed != 45)}
_OLDER_BLACKWELL_NET = V230.between | {
    100: tuple(speed for speed in V230.between[100] if speed not in (86, 80))
}
_V229 = replace(
    V230,
    release="2.29",
    nvls_tree=(*(V230.nvls_tree or ())[:3], (0.0, 96.0, 43.8)),
    inside=_OLDER_BLACKWELL,
    between=_OLDER_BLACKWELL_NET,
    shared_gpus=False,
)
_V228 = replace(
    _V229,
    release="2.28",
    ring_ll128=(*V230.ring_ll128[:3], (73.4, 34.6, 73.4)),
    nvls_tree_corrected=False,
    sends_by_rate=False,
)
_V226 = replace(
    _V228,
    release="2.26",
    hop_us=_with_simple(V230.hop_us, nvls_tree=(25.0, 0.0, 14.0)),
    ring_ll128=_doubled(V230.ring_ll128),
    tree_ll128=_doubled(V230.tree_ll128),
    tree=_doubled(V230.tree),
    nvls_tree=None,
    nvls_efficiency=(),
)
_V223 = replace(
    _V226,
    release="2.23",
    ring_ll128=_up_to_hopper(V230.ring_ll128),
    tree_ll128=_up_to_hopper(V230.tree_ll128),
    tree=_up_to_hopper(V230.tree),
)

_OLD_HOPPER = (60, 40, 30, 24, 20, 15, 12, 6, 3)
_OLD_HOPPER_NET = (48, 45, 42, 40, 30, 24, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
_V221 = replace(
    _V223,
    release="2.21",
    base_us=V230.base_us | {"tree": (6.8, 14.0, 0.0)},
    hop_us=_with_simple(
        V230.hop_us, tree=(28.0, 28.0, 28.0), nvls=(23.0, 0.0, 18.0), nvls_tree=(23.0, 0.0, 14.0)
    ),
    inside={0: V230.inside[0], 90: _OLD_HOPPER},
    between={0: V230.between[0], 90: _OLD_HOPPER_NET},
    algorithms=V230.algorithms - {"pat"},
    ring_ll128_alone=0.7,
    network_exposed=False,
    crossings=1,
    ll128_capabilities=(70, 80, 90),
    dealt_in_cells=False,
)
_AMPERE_LL = V230.ll_max[1]
_V220 = replace(
    _V221,
    release="2.20",
    ll_max=(V230.ll_max[0], _AMPERE_LL, _AMPERE_LL, _AMPERE_LL),
    ring_ll=1 / 4,
    ring_ll_gathering=1 / 3,
)
_V218 = replace(
    _V220,
    release="2.18",
    hop_us=_with_simple(
        _V220.hop_us,
        tree=(4.0, 6.0, 14.0),
        nvls_tree=(23.0, 0.0, 19.0),
        collnet_direct=(8.0, 8.0, 10.7),
        collnet_chain=(4.75, 8.0, 14.0),
    ),
    tree_by_depth=True,
)

_AMPERE_TREE = (24.0, 23.6, 17.8)
_TWENTY = (20.0, 20.0, 20.0)
_V210 = replace(
    _V218,
    release="2.10",
    base_us={"tree": (4.4, 4.4, 0.0), "ring": (3.6, 10.0, 8.4), "collnet_direct": (4.4, 4.4, 0.0)},
    hop_us={
        "nvlink": {"tree": (0.52, 1.25, 28), "ring": (0.47, 1.9, 3.4), "collnet_direct": (0.5, 1.2, 8.0)},
        "pci": {"tree": (1.0, 1.9, 28), "ring": (1.0, 2.5, 5.7), "collnet_direct": (1.0, 1.9, 8.0)},
        "net": {"tree": (5.0, 8.5, 28), "ring": (2.7, 4.0, 9.6), "collnet_direct": (5.0, 5.0, 10.7)},
    },
    ring_ll128=(_TWENTY,) * 4,
    tree_ll128=(_TWENTY,) * 4,
    tree=(V230.tree[0], _AMPERE_TREE, _AMPERE_TREE, _AMPERE_TREE),
    inside={0: (44, 30, 22, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)},
    between={0: (48, 30, 24, 22, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)},
    nvlink_gbps={60: 18.0, 70: 22.0, 80: 22.0, 86: 12.0},
    algorithms=frozenset({"tree", "ring", "collnet_direct"}),
    ampere_total=235.0,
    ll_inside=1.8,
    net_overhead=False,
    crossings=0,
    plateau=(1.9, 1.9),
    plateau_by_ranks=True,
    ll128_capabilities=(70, 80),
    ll128_over_nvb=False,
)

_SPEEDS_28 = (42, 30, 24, 21, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
_AMPERE_TREE_28 = (24.0, 22.5, 16.0)
_V28 = replace(
    _V210,
    release="2.8",
    correction=V230.correction
    | {
        "ll128": (
            *(1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
            *(0.6, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9, 0.92, 0.92, 1),
        )
    },
    ring_ll128_by_kind={
        "broadcast": 18.8,
        "reduce": 12.0,
        "all_gather": 18.3,
        "reduce_scatter": 15.2,
        "all_reduce": 16.9,
    },
    tree_ll128=((16.9, 16.9, 16.9),) * 4,
    tree_ll128_between=0.915,
    tree=(V230.tree[0], _AMPERE_TREE_28, _AMPERE_TREE_28, _AMPERE_TREE_28),
    inside={0: _SPEEDS_28},
    between={0: _SPEEDS_28},
    nvlink_gbps={60: 18.0, 70: 21.0},
)

RELEASES = {
    tables.release: tables for tables in (_V28, _V210, _V218, _V220, _V221, _V223, _V226, _V228, _V229, V230)
}
"""Every release that is modelled, oldest first."""

OLDEST, *_, DEFAULT_VERSION = RELEASES
"""The oldest release, and the newest, which is the default."""

_NUMBERS = re.compile(r"(\d+)\.(\d+)|\b(\d{4,6})\b")


@cache
def release_of(version: str) -> str:
    """Return the modelled release for a version such as ``2.21.5+cuda12.4``: the nearest not newer.

    Versions older than all count as the oldest, newer ones as the newest. The first of several numbers in a
    text counts; a single number as in nccl-tests' output (22105) is one too.
    """
    wanted = _numbers(version)
    older = [name for name in RELEASES if _numbers(name) <= wanted]
    return older[-1] if older else OLDEST


def names_one(text: str) -> bool:
    """Return whether a text names a version."""
    return re.search(_NUMBERS, text) is not None


def is_older(version: str) -> bool:
    """Return whether a version is older than every modelled release."""
    return _numbers(version) < _numbers(OLDEST)


def _numbers(version: str) -> tuple[int, int]:
    match = re.search(_NUMBERS, version)
    if not match:
        raise ValueError(f"unknown NCCL version {version!r}; write for example {DEFAULT_VERSION} or 2.21.5")
    if match[3]:
        code = int(match[3])
        return (code // 1000, code // 100 % 10) if code < 10_000 else (code // 10_000, code // 100 % 100)
    return int(match[1]), int(match[2])


def stand_in(version: str) -> str:
    """Return a sentence if another release is used for this version; empty if it is modelled itself."""
    release = release_of(version)
    if _numbers(version) == _numbers(release):
        return ""
    return f"NCCL {version} is not modelled; {release} is used instead"


def constants(version: str) -> Constants:
    """Return the tables of a release, or of the one used in its place."""
    return RELEASES[release_of(version)]

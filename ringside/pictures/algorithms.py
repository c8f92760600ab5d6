"""One fixed colour per algorithm, in every picture."""

_COLOURS = {
    "ring": "#0072b2", "tree": "#e69f00", "nvls": "#009e73", "nvls_tree": "#7fd1b9",
    "collnet_direct": "#cc79a7", "collnet_chain": "#e8bfd5", "pat": "#d55e00", "direct": "#56b4e9",
    "halving_doubling": "#f0e442", "double_binary_tree": "#f4c66b", "recursive_doubling": "#b5a900",
}  # fmt: skip
"""Okabe and Ito's colours, safe for the colour-blind, and lighter ones for related algorithms."""

_OTHER = ("#999999", "#4d4d4d", "#d9d9d9", "#7f5539", "#b08968")


def colour_of(algorithm: str) -> str:
    """Return the algorithm's colour, the same in every picture; those of few libraries share some."""
    return _COLOURS.get(algorithm) or _OTHER[sum(algorithm.encode()) % len(_OTHER)]

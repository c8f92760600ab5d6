"""One fixed colour for an algorithm, in every picture."""

_COLOURS = {
    "ring": "#0072b2", "tree": "#e69f00", "nvls": "#009e73", "nvls_tree": "#7fd1b9",
    "collnet_direct": "#cc79a7", "collnet_chain": "#e8bfd5", "pat": "#d55e00", "direct": "#56b4e9",
    "halving_doubling": "#f0e442", "double_binary_tree": "#f4c66b", "recursive_doubling": "#b5a900",
}  # fmt: skip
"""Okabe and Ito's, which the colour-blind tell apart, and lighter ones for what is related."""

_OTHER = ("#999999", "#4d4d4d", "#d9d9d9", "#7f5539", "#b08968")


def colour_of(algorithm: str) -> str:
    """The algorithm's colour, the same wherever it is drawn; those of few libraries share some."""
    return _COLOURS.get(algorithm) or _OTHER[sum(algorithm.encode()) % len(_OTHER)]

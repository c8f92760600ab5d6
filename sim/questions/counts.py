"""Counts of machines, or of ranks, as a question lists them."""

from ringside.topologies.catalogue import split


def parse_counts(text: str) -> tuple[int, ...]:
    """Parse the distinct counts of ``1,2,4,8``; raise ValueError for any other text."""
    counts = text.split(",")
    if not all(count.isdecimal() and int(count) > 0 for count in counts):
        raise ValueError(f"{text!r} are not node counts; write for example 1,2,4,8")
    return tuple(dict.fromkeys(map(int, counts)))


def without_count(cluster: str, nodes: tuple[int, ...] | None) -> str:
    """Return the cluster's name without its count; raise ValueError if ``nodes`` differ."""
    name, count = split(cluster)
    if None not in (count, nodes) and (count,) != nodes:
        counts = ",".join(map(str, nodes or ()))
        raise ValueError(f"{cluster} and --nodes {counts} have different counts; remove one of them")
    return name

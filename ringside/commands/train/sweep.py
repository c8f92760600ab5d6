"""The values of ``--sweep``."""

from ringside.topologies.catalogue import MAX_LINKS

SWEEPS = ("bucket-cap-mb", "nodes")


def sweep_of(text: str) -> tuple[str, list[float]]:
    """Parse a ``parameter=value,value`` text."""
    parameter, _, values = text.partition("=")
    try:
        numbers = [float(value) for value in values.split(",")]
    except ValueError:
        numbers = []
    if parameter not in SWEEPS or not numbers or any(not 0 <= value < float("inf") for value in numbers):
        raise ValueError(
            f"{text!r} is not a sweep of {' or '.join(SWEEPS)}; write for example bucket-cap-mb=1,5,25"
        )
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{text!r} names a value twice; write each once")
    return parameter, numbers


def whole_nodes(nodes: float) -> int:
    """Return a value of a sweep as a number of machines."""
    if nodes != int(nodes) or not 1 <= nodes <= MAX_LINKS:
        raise ValueError(
            f"{nodes:g} is not a number of nodes; write 1 to {MAX_LINKS}, for example nodes=1,2,4"
        )
    return int(nodes)

"""Ticks that several pictures share."""

from matplotlib.ticker import FuncFormatter

from ringside.topologies.units import format_duration

DURATIONS = FuncFormatter(lambda seconds, _: format_duration(seconds, 3))
"""Labels of an axis in seconds: 20 us."""

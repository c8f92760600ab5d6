"""Traces of the PyTorch profiler, as written by Kineto: each rank's communication and compute."""

from ringside.validation.readers.kineto.read import read_text, read_traces
from ringside.validation.readers.kineto.trace import RankTrace, Traced, TracedGroup, TraceError

__all__ = ["RankTrace", "TraceError", "Traced", "TracedGroup", "read_text", "read_traces"]

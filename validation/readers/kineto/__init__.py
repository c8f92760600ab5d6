"""Traces of the PyTorch profiler, as written by Kineto: each rank's communication and compute."""

from ringside.validation.readers.kineto.read import read_text, read_traces
from ringside.validation.readers.kineto.trace import Trace, Traced, TracedGroup, TraceError

__all__ = ["Trace", "TraceError", "Traced", "TracedGroup", "read_text", "read_traces"]

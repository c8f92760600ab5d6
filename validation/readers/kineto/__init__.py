"""Traces of the PyTorch profiler, as Kineto writes them: what each rank communicated and computed."""

from ringside.validation.readers.kineto.read import read_text, read_traces
from ringside.validation.readers.kineto.trace import Trace, Traced, TracedGroup, TraceError

__all__ = ["Trace", "TraceError", "Traced", "TracedGroup", "read_text", "read_traces"]

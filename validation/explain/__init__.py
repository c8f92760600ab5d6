"""Explain why a log is slower than similar machines: single causes, each tried on all of its rows."""

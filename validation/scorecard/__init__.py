"""Predictions of published rows that their fits did not use, beside simple rules."""

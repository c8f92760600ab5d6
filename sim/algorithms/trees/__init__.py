"""Algorithms along trees of ranks."""

"""Algorithms in which ranks send to neighbours only."""

"""Algorithms along the rows and columns of a grid of ranks."""

"""Algorithms whose partners are at distances that double or halve."""

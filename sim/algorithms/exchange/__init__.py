"""Algorithms in which every rank sends to every other."""

"""Algorithms of partners at distances that double or halve."""

"""The proof of a program, without time."""

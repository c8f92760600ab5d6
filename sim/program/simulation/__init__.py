"""The simulation of a program, with a clock."""

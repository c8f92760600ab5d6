"""MPI's measured model: rows become tasks, which are fitted, predicted and judged."""

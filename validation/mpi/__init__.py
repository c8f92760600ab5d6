"""MPI as it was measured: rows become tasks, tasks are fitted, predicted and judged."""

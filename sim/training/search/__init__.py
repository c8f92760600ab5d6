"""The search for the fastest layout of a job: bounds, and the choice of candidates to simulate."""

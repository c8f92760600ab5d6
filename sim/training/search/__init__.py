"""The search for the fastest layout of a job: bounds, and which candidates are worth simulating."""

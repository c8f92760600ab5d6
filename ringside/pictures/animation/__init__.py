"""Pages on which chunks of collectives, and micro-batches of a pipeline, move in step with a clock."""

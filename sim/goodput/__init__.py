"""The goodput of a training job under failures, checkpoints and restarts: by formula and by simulation."""

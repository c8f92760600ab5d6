"""What failures, checkpoints and restarts leave of a training job's time: by formula and by simulation."""

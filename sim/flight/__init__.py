"""PyTorch's Flight Recorder: what each rank of a job that hangs had called."""

"""Training by FSDP, pipelines and tensor parallelism: programs against real runs."""

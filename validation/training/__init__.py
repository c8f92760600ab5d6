"""Training by FSDP, pipelines and tensor parallelism: programs beside what was really run."""

"""Pictures of jobs: steps, programs, traces, goodput."""

"""NCCL's measured model: rows of records, the fit, its report, and the shipped calibrations."""

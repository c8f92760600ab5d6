"""Fitting NCCL's measured model: rows of records, the fit, its report, and what is shipped."""

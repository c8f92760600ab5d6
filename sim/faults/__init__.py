"""Faults of a cluster's nodes: their history, the law learnt from it, and draws from that law."""

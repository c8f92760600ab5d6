"""Decoders on tensor-parallel ranks."""

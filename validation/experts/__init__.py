"""Fits of the exchanges of experts' tokens to measured ones, and held-out errors."""

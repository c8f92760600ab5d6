"""Workloads in files."""

EVEN = """
name: even
batch: 8
parameters: {a: {count: 2097152}, b: {count: 2097152}}
layers:
  - {name: two, forward: 10ms, backward: 20ms, gradients: [b]}
  - {name: one, forward: 10ms, backward: 20ms, gradients: [a]}
"""

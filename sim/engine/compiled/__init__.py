"""Compiled: the event loop of `ringside.sim.engine.events` on arrays."""

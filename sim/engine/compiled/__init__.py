"""The event loop of `sim.engine.events` on arrays, to be compiled: what happens when, and what follows."""

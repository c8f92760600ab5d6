"""The event loop of `ringside.sim.engine.events` on arrays, to be compiled."""

"""Recording of a script as a `Program`."""

"""A script really run on the device that does not exist: operators sleep, collectives go through Gloo."""

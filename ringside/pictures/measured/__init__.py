"""Pictures of predictions against measurements."""

"""What a rank sends to others: its process groups, its collectives and messages, and the objects it sends."""

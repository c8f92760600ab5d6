"""What a rank says to others: its process groups, its collectives and messages, and the objects it sends."""

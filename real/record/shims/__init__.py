"""What recording has in place of packages that need a GPU."""

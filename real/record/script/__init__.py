"""Inside the process of one rank: a device that does not exist, and what the script does on it."""

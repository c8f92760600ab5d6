"""Training scripts that were recorded: the job as plain data, its kernels, and the program that it is."""

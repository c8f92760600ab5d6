"""What a GPU computes in training: kernels, the stacks that launch them, and their prices."""

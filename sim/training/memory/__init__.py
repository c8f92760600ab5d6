"""Memory of one GPU: what a rank holds and keeps, its peak in a step, and whether a training fits."""

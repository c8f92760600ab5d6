"""The explorer: a page on this machine on which questions are asked by controls, and answered."""

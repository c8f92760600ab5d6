"""How libraries carry out a collective: which algorithm, in which chunks."""

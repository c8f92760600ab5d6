"""How a collective is really carried out: which algorithm, in which chunks."""

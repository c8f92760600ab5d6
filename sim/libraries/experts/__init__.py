"""The exchange of tokens among the ranks of experts: dispatch and combine, by the libraries that do it."""

"""Small experiments that ask why a number of ours differs from a paper's; each prints a table."""

"""The five papers, one folder each: what its roles read and say, what pays, and the episode."""

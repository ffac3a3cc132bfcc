"""The figures of the paper's experiments: one file for each, drawn from what its experiment found."""

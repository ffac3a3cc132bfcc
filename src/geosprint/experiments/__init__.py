"""The paper's experiments: one file for each table or figure."""

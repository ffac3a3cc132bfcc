"""The report: one HTML page of everything that a directory holds."""

"""Slow, obvious versions of what the package does fast, in plain NumPy: never imported by the package."""

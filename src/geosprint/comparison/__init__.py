"""Every method on one model, side by side, on held-out noise."""

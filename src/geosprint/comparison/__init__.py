"""The yardstick: every method on one model, side by side, on noise that nothing was made from."""

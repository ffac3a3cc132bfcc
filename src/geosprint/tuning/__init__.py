"""The best schedule for a model, a solver and a number of steps, never worse than a closed form."""

"""The best schedule for a model, a solver and a number of steps, unless a closed form is surely better."""

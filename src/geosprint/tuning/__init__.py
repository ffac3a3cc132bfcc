"""The best schedule for a model, a solver and a number of steps, or a closed form that is surely better."""

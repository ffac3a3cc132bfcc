"""What looks at the solver's error: dynamic programs over the recorded trajectories."""

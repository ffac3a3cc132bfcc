"""How to step: a solver's few numbers per step, fitted to teacher trajectories by least squares."""

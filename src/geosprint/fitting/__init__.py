"""How to step: a solver's few numbers per step, fitted to fine walks by least squares."""

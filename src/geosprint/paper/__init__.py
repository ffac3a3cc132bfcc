"""The paper, experiment by experiment: run, draw, judge."""

"""Recipes: models trained from nothing, by code of this repository alone."""

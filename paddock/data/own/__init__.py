"""Samples of the user's own dataset, for a module of the user's own."""

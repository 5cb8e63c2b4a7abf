"""Weights that other programs wrote or are to read: their files, their names, and what of them fits a model of ours."""

"""The run directory: what its files are called, how it is made and described, and who may write into it."""

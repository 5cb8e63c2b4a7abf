"""Letting a model write: the loop over requests, what chooses tokens, and the processes that hold a model together."""

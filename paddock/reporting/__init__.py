"""Runs looked at when they are there: which there are and how they stand, their curves beside each other, reports, and
what may go. It reads run directories, and any log that `align` reads; only `tidying` changes something."""

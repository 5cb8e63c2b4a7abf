"""Sameness, shown: that every layout computes what one process does, and that a killed run ends as an undisturbed one."""

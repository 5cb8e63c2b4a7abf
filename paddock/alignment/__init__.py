"""Sameness, shown: every layout computes what one process does, and a killed run ends as an undisturbed one."""

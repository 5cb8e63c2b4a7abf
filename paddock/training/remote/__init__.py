"""A run directory whose copy is kept in a store."""

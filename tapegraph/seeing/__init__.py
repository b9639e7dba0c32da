"""Seeing what a program does: the first NaN, where the time goes, which engine runs and why."""

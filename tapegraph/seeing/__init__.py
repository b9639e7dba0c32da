"""Tools to look into a program: the first NaN, where time goes, which engine runs and why."""

"""Ten programs from the field, written for NumPy: none of them knows of tapegraph."""

"""Programs of single numbers: what `Value` computes inside a compiled step, and how it is run."""

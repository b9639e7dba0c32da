"""Programs of single numbers: the arithmetic of `Value` inside a compiled step."""

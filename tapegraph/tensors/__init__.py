"""The classes that users hold: `Tensor`, `Value`, `Dual`, and operations of their own."""

"""The faces of the tape: `Tensor`, `Value`, `Dual`, and operations of a user's own."""

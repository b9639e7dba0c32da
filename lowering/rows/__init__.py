"""TensorFlow nodes: one rule an operation, a file a family."""

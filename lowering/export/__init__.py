"""Functions of arrays as TensorFlow's own: SavedModels, and functions for use inside TensorFlow."""

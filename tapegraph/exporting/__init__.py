"""Functions exported for batches of any size, as SavedModels or as ONNX."""

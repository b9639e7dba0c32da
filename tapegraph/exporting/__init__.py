"""Functions of arrays that leave: recorded for batches of any size, as SavedModels or as ONNX."""

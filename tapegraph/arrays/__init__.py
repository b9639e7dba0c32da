"""Arrays without tensors: reused buffers, bitwise choice, sparse rows."""

"""What NumPy lacks: buffers that are used again, choice by bits, sparse rows. No tensors here."""

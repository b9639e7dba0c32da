"""`ArrayBox`: autograd's name for a traced array."""

from tapegraph.autograd.boxes import ArrayBox as ArrayBox

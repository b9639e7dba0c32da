"""The client check: test suites that were written for autograd, run on the drop-in.

``python -m tests.clients`` from the checkout's root.
"""

"""The mutation check: faults seeded into a copy of the library, and which tests notice.

``python -m tests.mutations`` from the checkout's root. A fault that no test of the quick suite
notices is a hole in the suite, or is named with the reason why none can.
"""

"""How fast tapegraph is beside its peers: ratios from one process, contenders taking turns.

``python -m benchmarks`` runs everything; ``python -m benchmarks --help`` tells the rest. Nothing
here imports NumPy before `benchmarks.environment` has fixed the number of threads.
"""

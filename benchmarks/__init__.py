"""How fast tapegraph is beside its peers: ratios from one process, contenders taking turns."""

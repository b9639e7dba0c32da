"""A fresh process's first steps: ``python -m benchmarks.first_steps WORKLOAD ENGINE STEPS``.

Prints, as JSON, the seconds of the first step and of all, and the engine that ran the last; with
``--compiled`` the processor seconds of the third step too, which prepares the program.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

from benchmarks.workloads import WORKLOADS


def main() -> None:
    p = argparse.ArgumentParser(prog="python -m benchmarks.first_steps", description=__doc__)
    p.add_argument("workload", choices=WORKLOADS)
    p.add_argument("engine", choices=("native", "tensorflow", "auto"))
    p.add_argument("steps", type=int)
    p.add_argument("--import-tensorflow", action="store_true", help="before the clock starts")
    p.add_argument("--compiled", action="store_true", help="by tg.compile")
    options = p.parse_args()

    import tapegraph as tg
    from benchmarks.contenders import OURS, load

    if options.import_tensorflow:
        import tensorflow as tf

        tf.constant(0.0)
    warnings.simplefilter("ignore")
    tg.set_backend(options.engine)
    module = load(options.workload)
    name = f"{OURS} compiled" if options.compiled else OURS
    step = module.CONTENDERS[name](module.problem()).step

    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    found: dict[str, float] = {"first": first}
    for number in range(2, options.steps + 1):
        before = time.process_time()
        step()
        if options.compiled and number == 3:
            found["third"] = time.process_time() - before
    found["total"] = time.perf_counter() - start
    print(json.dumps({**found, "ran": tg.last_backward().backend}))


if __name__ == "__main__":
    main()

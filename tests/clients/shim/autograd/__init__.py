"""`autograd`, and every module of it, is `tapegraph.autograd` where this folder is found first."""

import importlib
import pkgutil
import sys

import tapegraph
import tapegraph.autograd as drop_in

for _module in pkgutil.walk_packages(drop_in.__path__, "tapegraph.autograd."):
    importlib.import_module(_module.name)
for _name, _found in [*sys.modules.items()]:
    if _name.partition(".autograd")[0] == "tapegraph":
        sys.modules[_name.removeprefix("tapegraph.")] = _found

# What compares the name of a box's module, or chooses functions by it, finds autograd's.
for _kind in (tapegraph.Tensor, tapegraph.Dual):
    _kind.__module__ = "autograd.numpy.numpy_boxes"

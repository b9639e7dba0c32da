"""As TensorFlow nodes: products of vectors, matrices and tensors."""

from __future__ import annotations

from typing import Any

from tapegraph.lowering.rules import Rule, permuted, raw, reshaped
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.products import terms_of


def _einsum(out: Any, *operands: Any, spec: str) -> Any:
    inputs = [x if x.dtype == out.dtype else raw.Cast(x=x, DstT=out.dtype) for x in operands]
    if len(inputs) == 2:
        return raw.Einsum(inputs=inputs, equation=spec)
    return tensorflow().einsum(spec, *inputs, optimize="greedy")  # one node a pair


def exact_einsum(rule: Rule, out: Any, *operands: Any, spec: str) -> Any:
    """Contract with a gradient in which the cotangent's zeros absorb what they meet."""
    tf = tensorflow()
    terms, output = terms_of(spec)

    def lined_up(x: Any, term: str, labels: str) -> Any:
        order = [term.index(label) for label in labels if label in term]
        lengths = [x.shape[term.index(label)] if label in term else 1 for label in labels]
        return reshaped(permuted(x, order), tuple(lengths))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def lowered(*xs: Any) -> Any:
        def gradient(g: Any) -> list[Any]:
            g = tf.convert_to_tensor(g)  # that of a gathered product comes as IndexedSlices
            grads = []
            for i, term in enumerate(terms):
                labels = term + "".join(sorted(set("".join(terms)) - set(term)))
                product = lined_up(g, output, labels)
                for j, x in enumerate(xs):
                    if j != i:
                        factor = lined_up(tf.cast(x, g.dtype), terms[j], labels)
                        product = raw.MulNoNan(x=factor, y=product)
                summed = tf.reduce_sum(product, axis=list(range(len(term), len(labels))))
                grads.append(tf.cast(summed, xs[i].dtype))
            return grads

        return rule(out, *xs, spec=spec), gradient

    return lowered(*operands)


LOWERINGS: dict[str, Rule] = {"einsum": _einsum}

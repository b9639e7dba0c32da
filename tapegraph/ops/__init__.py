"""Operations by family: forward, checks and the public function of each.

The same file name holds an operation's gradient in ``fallback/``, its tangent in
``tapegraph/jvps/`` and its TensorFlow node in ``lowering/``.
"""

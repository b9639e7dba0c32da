"""The operations of the contract: those that tapegraph names itself."""

OPERATIONS = frozenset(
    (
        "add sub mul div pow neg sin cos tan exp log sqrt tanh sigmoid relu abs gelu silu matmul "
        "batch_matmul transpose sum mean softmax reshape tensor_slice concat gather where "
        "layer_norm conv2d max_pool2d avg_pool2d softmax_crossentropy mse_loss getitem index"
    ).split()
)

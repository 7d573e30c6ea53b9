"""The page's models as text: float32 weights of the embedded model, 6-bit changes of trained ones.

A trained tensor is `base + scale * step`, computed in float32: `step` is a whole number from -31
to 31, `scale` belongs to a row. Python and the browser unpack the same bits.
Arrays: R rows, C columns.
"""

import base64
import gzip
from collections.abc import Mapping
from typing import Any

import numpy as np

Tensors = dict[str, np.ndarray]  # float32, by name, in the order of the names
LARGEST_STEP = 31  # 127 would make the page half a megabyte larger
TIED = "lm_head.weight"  # the same numbers as the embedding


def tensors_of(policy: Any) -> Tensors:
    """Return a policy's weights."""
    state = policy.model.state_dict()
    tensors: Tensors = {}
    for name in sorted(state):
        if name != TIED:
            tensors[name] = state[name].numpy()
    return tensors


def load_tensors(policy: Any, tensors: Mapping[str, np.ndarray]) -> None:
    """Write weights into a policy's model."""
    import torch

    state = policy.model.state_dict()
    for name, values in tensors.items():
        state[name].copy_(torch.from_numpy(values))


def configuration(policy: Any) -> dict[str, Any]:
    """Return what the page's model needs to know besides the weights."""
    model = policy.model
    config = model.config
    (end,) = policy.eos_token_ids
    shapes = {}
    for name, array in tensors_of(policy).items():
        shapes[name] = list(array.shape)
    rotary = model.model.rotary_emb
    return {
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "epsilon": config.rms_norm_eps,
        "frequencies": rotary.inv_freq.tolist(),
        "end": end,
        "context": policy.context,
        "shapes": shapes,
    }


def pack_base(tensors: Tensors) -> str:
    """Return the untrained model's weights as text."""
    return _joined(list(tensors.values()))


def unpack_base(text: str, shapes: Mapping[str, list[int]]) -> Tensors:
    """Return the weights in the text of `pack_base`."""
    return _split(_from_text(text, "<f4"), shapes)


def pack_trained(base: Tensors, trained: Tensors) -> dict[str, str]:
    """Return the trained model's weights as text, rounded to the nearest step of its row."""
    steps = []
    scales = []
    for name, values in base.items():
        change = trained[name] - values
        change_RC = np.atleast_2d(change)
        size_RC = np.abs(change_RC)
        largest_R1 = size_RC.max(axis=1, keepdims=True)
        scale_R1 = largest_R1 / LARGEST_STEP
        scale_R1 = scale_R1.astype(np.float32)
        # A row without any change has the scale 0.
        divisor_R1 = np.where(scale_R1 == 0, 1, scale_R1)
        step_RC = np.round(change_RC / divisor_R1)
        steps.append(step_RC.astype(np.int8))
        scales.append(scale_R1)
    return {
        "steps": _joined(steps),
        "scales": _joined(scales),
    }


def unpack_trained(base: Tensors, packed: Mapping[str, str]) -> Tensors:
    """Return the weights in the text of `pack_trained`, those that the page plays with."""
    shapes = {}
    for name, values in base.items():
        shapes[name] = list(values.shape)
    steps = _from_text(packed["steps"], "i1")
    steps_of = _split(steps, shapes)
    scales = _from_text(packed["scales"], "<f4")
    tensors: Tensors = {}
    first_row = 0
    for name, values in base.items():
        step_RC = np.atleast_2d(steps_of[name])
        end_row = first_row + len(step_RC)
        scale_R = scales[first_row:end_row]
        change_RC = scale_R[:, None] * step_RC.astype(np.float32)
        tensors[name] = values + change_RC.reshape(values.shape)
        first_row = end_row
    return tensors


def _joined(arrays: list[np.ndarray]) -> str:
    """Return the numbers of several arrays, one after another, as text."""
    flat = [array.ravel() for array in arrays]
    numbers = np.concatenate(flat)
    packed = gzip.compress(numbers.tobytes(), mtime=0)
    return base64.b64encode(packed).decode()


def _from_text(text: str, dtype: str) -> np.ndarray:
    packed = base64.b64decode(text)
    numbers = gzip.decompress(packed)
    return np.frombuffer(numbers, dtype)


def _split(numbers: np.ndarray, shapes: Mapping[str, list[int]]) -> Tensors:
    """Split numbers into tensors of these shapes."""
    tensors: Tensors = {}
    start = 0
    for name, shape in shapes.items():
        end = start + int(np.prod(shape))
        tensors[name] = numbers[start:end].reshape(shape)
        start = end
    return tensors

"""PyTorch: activations out of a network, a rule into it, and ODIN.

Needs the extra ``torch``; `SelectiveModule.to_onnx` needs ``onnx`` as well.
"""

from demur.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtraError("torch", "torch") from None

from demur.adapters.stored import StoredActivations
from demur.adapters.torch_extract import extract
from demur.adapters.torch_module import SelectiveModule
from demur.adapters.torch_odin import Odin

__all__ = ["Odin", "SelectiveModule", "StoredActivations", "extract"]

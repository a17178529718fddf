"""Tensors of PyTorch: of the files that it writes, and those that the caller holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streameval.arrays.array import Array, choose_key, reading
from streameval.arrays.memory import LoadedArray, in_memory
from streameval.errors import InputError, OptionError


def open_tensor(tensor: Any, name: str | None) -> Array:
    """Return a tensor in the memory of the processor as an array, without a copy."""
    kind = f"{name or 'tensor'} is of {tensor.dtype} on device {tensor.device}"
    if tensor.device.type == "meta":
        raise InputError(f"{kind}, which holds no values: load them first")
    if tensor.device.type != "cpu":
        raise InputError(f"{kind}; memory of the processor is needed: give tensor.cpu()")
    remedy = "give tensor.float(), which holds every value of bfloat16 and float16"
    if str(tensor.layout) != "torch.strided":
        remedy = "give tensor.to_dense()"
    with reading(kind, "held by NumPy", remedy):
        values = tensor.detach().numpy()
    return in_memory(values, name)


def open_torch(path: Path, key: str | None, uri: str) -> Array:
    """Load one tensor of a file that ``torch.save`` has written, weights only.

    Its key joins its place in nested dictionaries and lists by slashes.
    """
    try:
        import torch
    except ImportError as error:
        raise OptionError(
            f"{uri}: {path.suffix} files are read by PyTorch, which is not installed: "
            "pip install torch, or save the tensor with numpy.save(FILE, tensor.cpu().numpy())"
        ) from error
    tensors: dict[str, Any] = {}

    def collect(content: Any, name: str) -> None:
        if isinstance(content, torch.Tensor):
            tensors[name] = content
        elif isinstance(content, dict | list | tuple):
            named = content.items() if isinstance(content, dict) else enumerate(content)
            for part, value in named:
                collect(value, f"{name}/{part}" if name else str(part))

    with reading(uri, "loaded", "it is damaged, or holds objects, which are never loaded"):
        collect(torch.load(path, map_location="cpu", weights_only=True), "")
    key, uri = choose_key(path, key, tensors, "tensor")
    with reading(uri, "held by NumPy", "save it dense, as float32"):
        tensor = tensors[key].detach()
        # NumPy has no bfloat16; float32 holds every value of it.
        values = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return LoadedArray(values, uri, open_torch, path, key or None)

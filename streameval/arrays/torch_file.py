"""`.pt` and `.pth` files, loaded whole by PyTorch, weights only: nothing else is unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import Array, choose_key
from streameval.arrays.memory import LoadedArray
from streameval.errors import InputError, OptionError

SUFFIXES = (".pt", ".pth")


def open_torch(path: Path, key: str | None, uri: str) -> Array:
    """Load one tensor of a file that ``torch.save`` has written.

    Parameters
    ----------
    path : Path
    key : str or None
        Name of the tensor in a dictionary, or its place in a list, with slashes where these are
        nested; may be left out where there is only one tensor.
    uri : str

    Raises
    ------
    InputError
        If the file is damaged or holds more than tensors, dictionaries and lists, or has no such
        tensor.
    OptionError
        If PyTorch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise OptionError(
            f"{uri}: {path.suffix} files are read by PyTorch, which is not installed: "
            "pip install torch, or save the tensor with numpy.save(FILE, tensor.cpu().numpy())"
        ) from error
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # of pickle, of zip, of torch's own
        raise InputError(
            f"{uri} can't be loaded ({type(error).__name__}: {_first_line(error)}): the file is "
            "damaged, or holds objects, which are never loaded; save the tensors alone"
        ) from error
    tensors: dict[str, Any] = {}
    _collect(content, "", tensors, torch.Tensor)
    key = choose_key(uri, key, tensors, f"FILE{path.suffix}", "tensor")
    tensor = tensors[key].detach()
    if tensor.dtype == torch.bfloat16:  # NumPy has none; float32 holds every value of it
        tensor = tensor.to(torch.float32)
    uri = f"{path}::{key}" if key else str(path)
    try:
        values = np.asarray(tensor.numpy())
    except (TypeError, RuntimeError) as error:  # sparse, quantised, ...
        raise InputError(
            f"{uri} is no tensor that NumPy can hold ({_first_line(error)}): save it dense, as "
            "float32"
        ) from error
    return LoadedArray(values, open_torch, path, key or None, uri)


def _collect(content: Any, name: str, found: dict[str, Any], tensor: type) -> None:
    """Find the tensors in nested dictionaries and lists, by their names joined by slashes."""
    if isinstance(content, tensor):
        found[name] = content
        return
    pairs: Any = ()
    if isinstance(content, dict):
        pairs = content.items()
    elif isinstance(content, list | tuple):
        pairs = enumerate(content)
    for key, value in pairs:
        _collect(value, f"{name}/{key}" if name else str(key), found, tensor)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]

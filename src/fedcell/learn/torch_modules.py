"""Modules for the torch engine: networks, checks of users' modules, and layers that replace others in training.

Clients are trained stacked: ``vmap`` runs a module once for all of them. Some layers are replaced for that, in a copy
of the module. On a GPU a convolution becomes `PatchConv2d`: grouped convolutions, which ``vmap`` would use, take 1.4
times as long with 50 clients and 3.4 times with 200. Dropout becomes `KeyedDropout`, whose draws are a function of the
job and the step, not of PyTorch's generator, so they do not depend on who else trains.
"""

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from fedcell.errors import InputError
from fedcell.learn.data import Dataset
from fedcell.learn.engine import HIDDEN

_KEYED = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU)
_SALT = 0x632BE59BD9B4E019  # sets the draws of a layer apart from another's


def mlp_module(dataset: Dataset, hidden: Sequence[int] = HIDDEN) -> nn.Module:
    """Return the network of ``MlpEngine``: flatten, then linear layers with ReLU between them.

    Args:
        dataset: its sample shape and number of classes set the sizes of the input and the output.
        hidden: units of each hidden layer.
    """
    sizes = [int(np.prod(dataset.train_x.shape[1:])), *hidden, dataset.classes]
    layers: list[nn.Module] = [nn.Flatten()]
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cnn_module(dataset: Dataset, channels: tuple[int, int] = (8, 16)) -> nn.Module:
    """Return a small convolutional network: twice 5x5 convolution, ReLU and 2x2 max pooling, then one linear layer.

    Args:
        dataset: samples of (height, width) or (channels, height, width), at least 16 x 16 pixels.
        channels: output channels of the two convolutions.
    """
    shape = dataset.train_x.shape[1:]
    *depth, height, width = shape if len(shape) >= 2 else (0, 0)
    if len(depth) > 1 or min(height, width) < 16:
        raise InputError(f"samples have shape {dataset.train_x.shape[1:]}; the CNN needs images of at least 16 x 16")
    first, second = channels
    rows, columns = ((size - 4) // 2 - 4 for size in (height, width))
    return nn.Sequential(
        nn.Conv2d(depth[0] if depth else 1, first, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * (rows // 2) * (columns // 2), dataset.classes),
    )


def checked_module(module: nn.Module) -> nn.Module:
    """Return the module, or raise if its state does not fit into a model vector or it cannot be trained stacked."""
    if not isinstance(module, nn.Module):
        raise InputError(f"module is a {type(module).__name__}; give an nn.Module or a function that returns one")
    for name, layer in module.named_modules():
        if isinstance(layer, _RANDOM) and type(layer) not in _KEYED and getattr(layer, "p", 1.0) != 0:
            raise InputError(
                f"layer {name!r} ({type(layer).__name__}) draws random numbers in training, which would not be "
                "reproducible across clients; use Dropout, or remove it"
            )
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise InputError(
            f"the module has the buffer {buffers[0]!r}, which is not part of the model vector and would not be "
            "averaged; use layers without running statistics, such as GroupNorm instead of BatchNorm"
        )
    parameters = dict(module.named_parameters())
    if len(parameters) != len(dict(module.named_parameters(remove_duplicate=False))):
        raise InputError("the module shares a parameter between layers; give each layer its own")
    wrong = [name for name, value in parameters.items() if value.dtype != torch.float32 or not value.requires_grad]
    if wrong or not parameters:
        what = f"parameter {wrong[0]!r} is frozen or not float32" if wrong else "the module has no parameters"
        raise InputError(f"{what}; give a module whose parameters are all float32 and trained")
    return module


def wants_channel(module: nn.Module) -> bool:
    """Whether the first layer with weights is a 2-D convolution, which expects a channel dimension."""
    first = next((layer for layer in module.modules() if list(layer.parameters(recurse=False))), None)
    return isinstance(first, nn.Conv2d)


def for_training(module: nn.Module, patches: bool) -> tuple[nn.Module, "Keys"]:
    """Return a copy of the module to be trained stacked, and where its dropout layers read their key.

    Args:
        module: a checked module.
        patches: whether convolutions are computed as products with patches.
    """
    copy, keys = deepcopy(module).train(), Keys()
    for layer in copy.modules():
        if type(layer) in _KEYED and cast(Any, layer).p > 0:
            keys.layers += 1
            layer.__dict__.update(keys=keys, salt=wrapped(keys.layers * _SALT), elementwise=type(layer) is nn.Dropout)
            layer.__class__ = KeyedDropout
        elif patches and type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros":
            if not isinstance(layer.padding, str) and layer.dilation == (1, 1):
                layer.__class__ = PatchConv2d
        elif patches and type(layer) is nn.Linear:
            layer.__class__ = PlainLinear
        elif patches and type(layer) is nn.GroupNorm:
            layer.__class__ = PlainGroupNorm
    return copy, keys


class Keys:
    """The key of the present step, an int64 scalar for each job, for the dropout layers of one module.

    Attributes:
        layers: number of layers that draw.
        now: the key; None outside training.
    """

    def __init__(self) -> None:
        self.layers = 0
        self.now: Tensor | None = None


class KeyedDropout(nn.Module):
    """Dropout whose mask is a function of a job's key, the step, the layer and the place of the element."""

    keys: Keys
    salt: int
    p: float
    elementwise: bool

    @override
    def forward(self, x: Tensor) -> Tensor:
        if self.keys.now is None:
            return x
        shape = x.shape if self.elementwise else (*x.shape[:2], *(1 for _ in x.shape[2:]))
        place = torch.arange(int(np.prod(shape)), device=x.device).view(shape)
        kept = uniform(self.keys.now + self.salt, place) >= self.p
        return x * kept / (1.0 - self.p) if self.p < 1 else x * 0.0


def wrapped(number: int) -> int:
    """Return the number modulo 2^64 as a signed 64-bit integer."""
    return (number + 2**63) % 2**64 - 2**63


def uniform(key: Tensor, place: Tensor) -> Tensor:
    """Return numbers from [0, 1), multiples of 2^-24: the SplitMix64 generator's output number ``place`` from ``key``.

    Args:
        key: int64, any bits.
        place: int64, from 0.
    """
    z = key + (place + 1) * -0x61C8864680B583EB  # arithmetic is modulo 2^64; this is 0x9E3779B97F4A7C15
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
    z = z ^ ((z >> 31) & 0x1FFFFFFFF)
    return ((z >> 40) & 0xFFFFFF).float() * 2.0**-24


class PlainGroupNorm(nn.GroupNorm):
    """Group normalisation in plain operations: under vmap, PyTorch's own refuses inputs with channels innermost."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        groups = torch.unflatten(x, 1, (self.num_groups, -1))
        variance, mean = torch.var_mean(groups, dim=tuple(range(2, groups.dim())), correction=0, keepdim=True)
        found: Tensor = ((groups - mean) * torch.rsqrt(variance + self.eps)).flatten(1, 2)
        if self.affine:
            wide = (-1, *(1 for _ in x.shape[2:]))
            found = found * self.weight.view(wide) + self.bias.view(wide)
        return found


class PlainLinear(nn.Linear):
    """A linear layer whose gradient has the memory layout of its weights: vmap's is transposed, slow to subtract."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        bias = self.weight.new_zeros(len(self.weight)) if self.bias is None else self.bias
        return cast(Tensor, cast(Any, _Linear).apply(x.reshape(-1, x.shape[-1]), self.weight, bias)).view(
            *x.shape[:-1], -1
        )


class PatchConv2d(nn.Conv2d):
    """A convolution as one matrix product per client with the patches of its inputs."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        bias = self.weight.new_zeros(len(self.weight)) if self.bias is None else self.bias
        rows, columns = cast(tuple[int, int], self.padding)
        padded = functional.pad(x, (columns, columns, rows, rows)) if rows or columns else x
        return cast(Tensor, cast(Any, _PatchConv).apply(padded, self.weight, bias, self.stride))


def _stacked(info: Any, in_dims: tuple[Any, ...], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors with the clients' dimension first, whether vmap had given them one or not."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims, strict=True)
    ]


class _Linear(torch.autograd.Function):
    """The linear layer of one client; under vmap, of all of them by `_StackedLinear`."""

    @staticmethod
    @override
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.linear(x, weight, bias)

    @staticmethod
    @override
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        raise NotImplementedError("only used under vmap")

    @staticmethod
    @override
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        return cast(Tensor, cast(Any, _StackedLinear).apply(*_stacked(info, in_dims, args))), 0


class _StackedLinear(torch.autograd.Function):
    """Linear layers of J clients: x (J, n, i), weight (J, o, i), bias (J, o) -> (J, n, o)."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        below = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        return below, torch.bmm(gradient.transpose(1, 2), x), gradient.sum(1)


class _PatchConv(torch.autograd.Function):
    """The convolution of one client; under vmap, of all of them by `_StackedConv`."""

    @staticmethod
    @override
    def forward(x: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int]) -> Tensor:
        return functional.conv2d(x, weight, bias, stride)

    @staticmethod
    @override
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        raise NotImplementedError("only used under vmap")

    @staticmethod
    @override
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        x, weight, bias = _stacked(info, in_dims[:3], args[:3])
        return cast(Tensor, cast(Any, _StackedConv).apply(x, weight, bias, args[3])), 0


class _StackedConv(torch.autograd.Function):
    """Convolutions of J clients: x (J, n, c, h, w), weight (J, o, c, kh, kw), bias (J, o) -> (J, n, o, h', w').

    Values lie with channels innermost, so patches are copied in runs of c. The gradient of x adds up kh x kw slices.
    """

    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int]) -> Tensor:
        J, n, c, h, w = x.shape
        _, o, _, kh, kw = weight.shape
        windows = (
            x.permute(0, 1, 3, 4, 2).unfold(2, kh, stride[0]).unfold(3, kw, stride[1])
        )  # (J, n, h', w', c, kh, kw)
        rows, columns = windows.shape[2:4]
        patches = windows.permute(0, 1, 2, 3, 5, 6, 4).reshape(J, n * rows * columns, kh * kw * c)
        matrix = weight.permute(0, 3, 4, 2, 1).reshape(J, kh * kw * c, o)
        out = torch.baddbmm(bias.unsqueeze(1), patches, matrix)
        ctx.save_for_backward(patches, matrix)
        ctx.sizes = (J, n, c, h, w, o, kh, kw, rows, columns, stride)
        return out.view(J, n, rows, columns, o).permute(0, 1, 4, 2, 3)

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        patches, matrix = ctx.saved_tensors
        J, n, c, h, w, o, kh, kw, rows, columns, stride = ctx.sizes
        flat = gradient.permute(0, 1, 3, 4, 2).reshape(J, n * rows * columns, o)
        weight = torch.bmm(patches.transpose(1, 2), flat).view(J, kh, kw, c, o).permute(0, 4, 3, 1, 2)
        x = None
        if ctx.needs_input_grad[0]:
            parts = torch.bmm(flat, matrix.transpose(1, 2)).view(J, n, rows, columns, kh, kw, c)
            x = parts.new_zeros(J, n, h, w, c)
            for i in range(kh):
                for j in range(kw):
                    down, right = (
                        slice(i, i + stride[0] * rows, stride[0]),
                        slice(j, j + stride[1] * columns, stride[1]),
                    )
                    x[:, :, down, right] += parts[:, :, :, :, i, j]
            x = x.permute(0, 1, 4, 2, 3)
        return x, weight, flat.sum(1), None

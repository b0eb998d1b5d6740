"""How far float32 on a CPU and on a GPU are apart in a deep network, and from float64; with ReLU and with softplus.

The clients are those of the two ResNet rows of gpu_checks.py. Run it where there is a GPU: `python
benchmarks/gpu_rounding.py`.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.peers import cifar
from examples.cifar_resnet import resnet

from fedcell.learn.torch_engine import TorchEngine
from fedcell.learn.torch_stack import exact

DATA = cifar.images()


def trained(start: Tensor, order: Any, smooth: bool, momentum: float, device: str, kind: torch.dtype) -> Tensor:
    """What four steps of plain PyTorch add to the start, in float64 on the CPU."""
    module = resnet(DATA)
    nn.utils.vector_to_parameters(start.clone(), module.parameters())
    module.to(device, kind)
    first = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01, momentum=momentum)
    plain = torch.relu, nn.ReLU.forward
    if smooth:
        torch.relu = nn.functional.softplus
        nn.ReLU.forward = lambda _, x: nn.functional.softplus(x)  # type: ignore[method-assign, assignment]
    try:
        for ids in torch.split(torch.as_tensor(order), 10):
            x = (torch.as_tensor(DATA.train_x)[ids].to(device, kind) / 255 - DATA.shift) / DATA.scale
            optimiser.zero_grad()
            loss = cross_entropy(module(x), torch.as_tensor(DATA.train_y)[ids].to(device).long())
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    finally:
        torch.relu, nn.ReLU.forward = plain  # type: ignore[method-assign]
    return (nn.utils.parameters_to_vector(module.parameters()).detach() - first).double().cpu()


def main() -> None:
    draws, rng = TorchEngine(DATA, resnet(DATA), device="cpu"), np.random.default_rng(0)
    start = torch.tensor(draws.initial(np.random.default_rng(1)))
    orders = [[rng.permutation(2000)[:40] for _ in range(6)] for _ in range(4)]
    for smooth in (False, True):
        for momentum, clients in ((0.0, orders[2]), (0.9, orders[3])):
            print(f"{'softplus' if smooth else 'ReLU'}, momentum {momentum}, shares of the step:")
            for order in clients:
                with exact(tf32=False):
                    cpu, gpu, cpu64, gpu64 = (
                        trained(start, order, smooth, momentum, device, kind)
                        for kind in (torch.float32, torch.float64)
                        for device in ("cpu", "cuda")
                    )
                shares = [float((a - b).norm() / cpu64.norm()) for a, b in ((cpu, gpu), (cpu, cpu64), (gpu, cpu64))]
                last = float((gpu64 - cpu64).norm() / cpu64.norm())
                print(
                    f"  CPU to GPU {shares[0]:.1e}, CPU to float64 {shares[1]:.1e}, GPU to float64 {shares[2]:.1e}, "
                    f"in float64 {last:.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

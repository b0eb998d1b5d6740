"""Training on a GPU: pfl's CIFAR-10 work in pfl, in a plain PyTorch loop and here; the paper's MLP; any model on a CPU.

Run it where there is a GPU: `python benchmarks/gpu.py`. It needs PyTorch and NumPy, and pfl for the rows that are its.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.peers import cifar

from fedcell.learn.data import Dataset, load_dataset
from fedcell.learn.engine import Job
from fedcell.learn.torch_engine import TorchEngine
from fedcell.learn.torch_modules import cnn_module, mlp_module, wants_channel


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(call: Callable[..., Any], *given: Any, repeats: int = 5) -> float:
    """The median time of a call, after one that is not counted."""
    call(*given)
    found = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        call(*given)
        wait()
        found.append(time.perf_counter() - start)
    return float(np.median(found))


def train(engine: Any, jobs: list[Job]) -> Any:
    """The mean of the trained models."""
    return engine.update(jobs).mean()


def train_and_evaluate(engine: Any, jobs: list[Job]) -> Any:
    return engine.evaluate(train(engine, jobs)[np.newaxis])


def ceilings() -> tuple[float, float]:
    """What the card does: float32 multiply-adds (TFLOP/s, twice each), and bytes copied (TB/s, read and written)."""
    a, b = (torch.randn(8192, 8192, device="cuda") for _ in range(2))
    flops = 2 * 8192**3 / seconds(torch.matmul, a, b)
    source, target = (torch.empty(2**30, dtype=torch.uint8, device="cuda") for _ in range(2))
    return flops / 1e12, 2 * 2**30 / seconds(target.copy_, source) / 1e12


def pfl_round(clients: int, rounds: int, processes: int) -> dict[str, Any] | str:
    """Seconds of pfl's rounds, and its accuracies; or why there are none."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    script = Path(__file__).parent / "peers" / "pfl_cifar.py"
    command = [sys.executable, *launch, str(script), str(clients), str(rounds)]
    environment = dict(os.environ, PYTHONPATH=":".join(sys.path), OMP_NUM_THREADS="1")
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] | str = json.loads(lines[-1]) if lines else (done.stderr.strip().splitlines() or ["?"])[-1]
    return found


def plain_loop(data: Dataset, module: nn.Module, orders: Any, rate: float, device: str) -> list[torch.Tensor]:
    """Client by client, batch by batch, as one writes it in PyTorch; the mean of the models."""
    x = (torch.tensor(data.train_x, device=device).float() / 255 - data.shift) / data.scale
    x, y = (
        (x[:, None] if x.dim() == 3 and wants_channel(module) else x),
        torch.tensor(data.train_y, device=device),
    )
    start = [parameter.detach().clone() for parameter in module.parameters()]
    total = [torch.zeros_like(parameter) for parameter in start]
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)

    for order in orders:
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), start, strict=True):
                parameter.copy_(value)
        ids = torch.as_tensor(order, device=device)
        for batch in torch.split(ids, 10):
            optimiser.zero_grad()
            cross_entropy(module(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.no_grad():
            for number, parameter in enumerate(module.parameters()):
                total[number] += parameter
    return [one / len(orders) for one in total]


def jobs_of(start: Any, orders: Any) -> list[Job]:
    return [Job(start, order[np.newaxis]) for order in orders]


def cifar_table(clients: list[int], rounds: int, tera: tuple[float, float]) -> None:
    data = cifar.images()
    weights = sum(w.size for w in cifar.make_weights())
    print(f"\npfl's CIFAR-10 work: 50 images a client, batches of 10, one epoch; {weights:,} weights")
    print(f"{'':34}{'clients':>8}{'ms a round':>12}{'with evaluation':>17}{'floor ms':>10}{'times it':>10}{'GiB':>7}")
    start = np.concatenate([w.ravel() for w in cifar.make_weights()])
    accuracies: dict[str, Any] = {}
    for tf32 in (False, True):
        for count in clients:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            engine = TorchEngine(data, cifar.network, learning_rate=cifar.RATE, device="cuda", tf32=tf32)
            jobs = jobs_of(start, cifar.orders(count, 1)[0])
            once = seconds(train, engine, jobs)
            both = seconds(train_and_evaluate, engine, jobs)
            floor = cifar.flops(count) / tera[0] / 1e12 + cifar.moved_bytes(count, start.size) / tera[1] / 1e12
            room = torch.cuda.max_memory_allocated() / 2**30
            name = "fedcell" + (", TF32" if tf32 else "")
            print(
                f"{name:34}{count:>8}{1e3 * once:>12.1f}{1e3 * both:>17.1f}{1e3 * floor:>10.1f}"
                f"{once / floor:>10.1f}{room:>7.1f}",
                flush=True,
            )
            if not tf32 and count == 50:
                one, two = engine.train(jobs[:8]), engine.train(jobs[:8])
                print(f"{'':34}the same twice: {np.array_equal(one, two)}")
                model, found = start, []
                for order in cifar.orders(count, rounds):
                    model = engine.update(jobs_of(model, order)).mean()
                    found.append(float(engine.evaluate(model[np.newaxis]).accuracy[0]))
                accuracies["fedcell"] = found
    module = cifar.network().cuda()
    loop = seconds(plain_loop, data, module, cifar.orders(50, 1)[0], cifar.RATE, "cuda", repeats=2)
    print(f"{'a plain PyTorch loop':34}{50:>8}{1e3 * loop:>12.1f}", flush=True)
    for processes in (1, 2, 5, 10):
        found_pfl = pfl_round(50, rounds, processes)
        if isinstance(found_pfl, str):
            print(f"pfl, {processes} processes: failed: {found_pfl[:150]}")
            continue
        name = f"pfl {found_pfl['version']}, {processes} process{'es' * (processes > 1)}"
        print(f"{name:34}{50:>8}{1e3 * float(np.median(found_pfl['seconds'])):>12.1f}", flush=True)
        if processes == 1:
            accuracies["pfl"] = found_pfl["accuracy"]
    for name, curve in accuracies.items():
        print(f"accuracy after each round, {name}: {' '.join(f'{100 * a:.1f}' for a in curve)}")


def in_float64(data: Dataset, job: Job, rate: float = 0.01) -> Any:
    """The MLP after one epoch in batches of 10, all in float64; where a float32 sum is near 0, ReLU may differ."""
    inputs = data.train_x[0].size
    sizes = np.cumsum([64 * inputs, 64, 64 * data.classes])
    w1, b1, w2, b2 = np.split(job.start.astype(np.float64), sizes)
    w1, w2 = w1.reshape(64, inputs), w2.reshape(data.classes, 64)
    for ids in np.split(job.order[0], range(10, job.order.size, 10)):
        x = (data.train_x[ids].reshape(len(ids), -1) / 255.0 - data.shift) / data.scale
        hidden = np.maximum(x @ w1.T + b1, 0.0)
        logits = hidden @ w2.T + b2
        step = np.exp(logits - logits.max(axis=1, keepdims=True))
        step /= step.sum(axis=1, keepdims=True)
        step[np.arange(len(ids)), data.train_y[ids]] -= 1.0
        step *= rate / len(ids)
        below = (step @ w2) * (hidden > 0.0)
        w2, b2, w1, b1 = w2 - step.T @ hidden, b2 - step.sum(axis=0), w1 - below.T @ x, b1 - below.sum(axis=0)
    return np.concatenate([w1.ravel(), b1, w2.ravel(), b2])


def mlp_table(clients: list[int]) -> None:
    from fedcell.learn.mlp_cuda import MlpCudaEngine

    data, rng = load_dataset("mnist"), np.random.default_rng(0)
    engine = MlpCudaEngine(data)
    start = engine.initial(np.random.default_rng(1))
    print("\nThe paper's MLP, 784-64-10: 3,000 digits a client, batches of 10, one epoch")
    few = jobs_of(start, [rng.permutation(60_000)[:3000] for _ in range(4)])
    one, two = engine.update(few), engine.update([few[2], few[0]])
    same = np.array_equal(one.models()[[2, 0]], two.models())
    try:
        from fedcell.learn.mlp import MlpEngine

        cpu = MlpEngine(data)
        theirs = cpu.update(few)
        true = [in_float64(data, job) for job in few]
        for name, models, others in (
            ("the CPU kernel", one.models(), theirs.models()),
            ("float64", one.models(), true),
            ("float64, the CPU kernel", theirs.models(), true),
        ):
            pairs = zip(models, others, strict=True)
            apart = [f"{np.linalg.norm(a - b) / np.linalg.norm(a - start):.1e}" for a, b in pairs]
            print(f"apart from {name}, as a share of the step: {' '.join(apart)}")
        print(f"losses {one.losses.round(6)}, {theirs.losses.round(6)}")
        a, b = engine.evaluate(one.models()), cpu.evaluate(one.models())
        print(f"evaluations: accuracies {a.accuracy} and {b.accuracy}, losses {a.loss} and {b.loss}")
        jobs = jobs_of(start, [rng.permutation(60_000)[:3000] for _ in range(8)])
        print(f"CPU kernel, 8 clients: {1e3 * seconds(cpu.update, jobs):.1f} ms")
    except ImportError as error:
        print(f"no CPU kernel here: {error}")
    print(f"the same whatever the company, and twice: {same}")
    print(f"{'clients':>8}{'ms':>9}{'client-epochs/s':>17}{'us a step':>11}{'with mean and evaluation, ms':>30}")
    for count in clients:
        jobs = jobs_of(start, [rng.permutation(60_000)[:3000] for _ in range(count)])
        order_s = seconds(engine.update, jobs)
        both = seconds(train_and_evaluate, engine, jobs)
        waves = -(-count // torch.cuda.get_device_properties(0).multi_processor_count)
        print(
            f"{count:>8}{1e3 * order_s:>9.2f}{count / order_s:>17,.0f}"
            f"{1e6 * order_s / 300 / waves:>11.2f}{1e3 * both:>30.2f}",
            flush=True,
        )


def cpu_table(samples: int) -> None:
    data, rng = load_dataset("mnist"), np.random.default_rng(0)
    print(
        f"\nThe torch engine on a CPU, 8 clients x {samples:,} samples, seconds "
        f"({torch.get_num_threads()} threads allowed)"
    )
    for name, module in (("mlp", mlp_module(data)), ("cnn", cnn_module(data))):
        orders = [rng.permutation(60_000)[:samples] for _ in range(8)]
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(seconds(plain_loop, data, module, orders, 0.01, "cpu", repeats=1))
        for threads in (1, 2):
            torch.set_num_threads(threads)
            engine = TorchEngine(data, module, threads=threads)
            jobs = jobs_of(engine.initial(np.random.default_rng(1)), orders)
            found.append(seconds(engine.update, jobs, repeats=1))
        print(
            f"{name}: plain loop {found[0]:.2f} (1 thread), {found[1]:.2f} (2); "
            f"fedcell {found[2]:.2f} (1), {found[3]:.2f} (2)",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 50, 200, 400])
    parser.add_argument("--mlp-clients", type=int, nargs="+", default=[8, 50, 132, 264, 396, 1056, 2112])
    parser.add_argument("--rounds", type=int, default=13)
    parser.add_argument("--parts", nargs="+", default=["cifar", "mlp", "cpu"])
    given = parser.parse_args()
    if torch.cuda.is_available():
        tera = ceilings()
        print(
            f"torch {torch.__version__}, {torch.cuda.get_device_name()}: "
            f"{tera[0]:.0f} TFLOP/s in float32, {tera[1]:.2f} TB/s"
        )
        if "mlp" in given.parts:
            mlp_table(given.mlp_clients)
        if "cifar" in given.parts:
            cifar_table(given.clients, given.rounds, tera)
    if "cpu" in given.parts:
        cpu_table(3000)


if __name__ == "__main__":
    main()

"""What only a GPU can show: dropout, GroupNorm and momentum as on a CPU, memory that runs out, sweeps and races.

Run it where there is a GPU: `python benchmarks/gpu_checks.py`.
"""

import argparse
import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.peers import cifar
from examples.cifar_resnet import resnet

import fedcell as fc
from fedcell.learn.data import load_dataset
from fedcell.learn.engine import Job
from fedcell.learn.mlp import MlpEngine
from fedcell.learn.mlp_cuda import MlpCudaEngine
from fedcell.learn.torch_engine import TorchEngine
from fedcell.runs.race import default_race
from fedcell.sim import Simulation, step_together


def network(dropout: float) -> nn.Module:
    layers = [nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout), nn.Linear(16 * 15 * 15, 10)]
    return nn.Sequential(*layers)


def alike() -> None:
    """The same jobs on a CPU and on the GPU; how far apart, as a share of the step."""
    data, rng = cifar.images(), np.random.default_rng(0)
    print("as on a CPU, 6 clients x 40 images, one epoch:          apart    the same twice")
    settings: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
        "dropout": (lambda: network(0.5), {}),
        "momentum and weight decay": (lambda: network(0.0), {"momentum": 0.9, "weight_decay": 1e-3}),
        "ResNet with GroupNorm": (lambda: resnet(data), {}),
        "ResNet with GroupNorm and momentum": (lambda: resnet(data), {"momentum": 0.9}),
    }
    for name, (module, given) in settings.items():
        made = module()
        engines = [TorchEngine(data, made, device=device, **given) for device in ("cpu", "cuda")]
        start = engines[0].initial(np.random.default_rng(1))
        jobs = [Job(start, rng.permutation(2000)[:40][np.newaxis], key=(7, number)) for number in range(6)]
        one, two, again = engines[0].train(jobs), engines[1].train(jobs), engines[1].train(jobs)
        apart = np.linalg.norm(two - one) / np.linalg.norm(one - start)
        print(f"  {name:50}{apart:>10.1e}    {np.array_equal(two, again)}", flush=True)


def losses_alike() -> None:
    """The losses of models on samples that are not trained on, by the MLP's two engines."""
    mnist, rng = load_dataset("mnist"), np.random.default_rng(0)
    cpu = MlpEngine(mnist)
    jobs = [Job(cpu.initial(rng), rng.permutation(60_000)[:n][np.newaxis]) for n in (1, 64, 3000)]
    one, two = cpu.losses(jobs), MlpCudaEngine(mnist).losses(jobs)
    print(f"  {'the losses of the paper MLP':50}{np.abs(two / one - 1).max():>10.1e}", flush=True)


def memory_runs_out() -> None:
    """Train with ever less of the card's memory; the results must stay the same but for rounding."""
    data, rng = cifar.images(), np.random.default_rng(0)
    total = torch.cuda.get_device_properties(0).total_memory
    print("memory that runs out, 64 clients of pfl's network:      stack    apart")
    start = np.concatenate([w.ravel() for w in cifar.make_weights()])
    jobs = [Job(start, rng.permutation(2000)[:50][np.newaxis]) for _ in range(64)]
    whole: Any = None
    for gib in (None, 3.0, 2.0, 1.5, 1.0):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1.0 if gib is None else gib * 2**30 / total)
        try:
            engine = TorchEngine(data, cifar.network, device="cuda")
            found = engine.train(jobs)
        except fc.InputError as error:
            print(f"  {gib} GiB: {str(error)[:90]}")
            continue
        whole = found if whole is None else whole
        apart = np.linalg.norm(found - whole) / np.linalg.norm(whole - start)
        room = "all of it" if gib is None else f"{gib} GiB"
        print(f"  {room:52}{engine._stack:>5}{apart:>12.1e}", flush=True)
        del engine
    torch.cuda.set_per_process_memory_fraction(1.0)


def mlp_memory_runs_out() -> None:
    """The same for the paper's MLP, whose results must be the same to the last bit."""
    total = torch.cuda.get_device_properties(0).total_memory
    print("the paper's MLP, 528 clients:                           at once  the same")
    mnist = load_dataset("mnist")
    whole: Any = None
    for gib in (None, 0.6, 0.4, 0.3, 0.2):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1.0 if gib is None else gib * 2**30 / total)
        try:
            small = MlpCudaEngine(mnist)
            start, rng = small.initial(np.random.default_rng(1)), np.random.default_rng(2)
            found = small.train([Job(start, rng.permutation(60_000)[:3000][np.newaxis]) for _ in range(528)])
        except fc.InputError as error:
            print(f"  {gib} GiB: {str(error)[:90]}")
            continue
        whole = found if whole is None else whole
        room = "all of it" if gib is None else f"{gib} GiB"
        print(f"  {room:52}{min(small._most, 528):>5}    {np.array_equal(found, whole)}", flush=True)
        del small
    torch.cuda.set_per_process_memory_fraction(1.0)


def clock() -> tuple[float, float]:
    """Wall time, and processor time of this process and of its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in used)


def races_and_sweeps(race: fc.Spec, rounds: int) -> None:
    print("                                                        seconds  processor")
    found: dict[str, Any] = {}
    for device in ("cuda", "cuda", "cpu"):
        began = clock()
        found[device] = fc.run_race(race.changed({"task.device": device}, race.grid))
        took = np.subtract(clock(), began)
        print(f"  the race, {len(race.runs())} runs, {device:36}{took[0]:>8.1f}{took[1]:>11.1f}", flush=True)
    best = {device: {p: s.best.mean for p, s in result.summaries().items()} for device, result in found.items()}
    apart = max(abs(best["cuda"][policy] - best["cpu"][policy]) for policy in best["cpu"])
    print(f"  best accuracies, means over seeds: at most {apart:.4f} apart")
    grid: dict[str, list[Any]] = {"policy": [f"random:k={k}" for k in (2, 4, 8, 12)], "seed": list(range(16))}
    for device in ("cuda", "cpu"):
        sweep = fc.Spec(rounds=rounds, task=fc.TaskSpec(device=device), grid=grid)
        with tempfile.TemporaryDirectory() as folder, fc.Store(f"{folder}/results.db") as store:
            began = clock()
            result = fc.run_sweep(sweep, store)
            took = np.subtract(clock(), began)
        print(f"  a sweep of {result.done} runs x {rounds} rounds, {device:25}{took[0]:>8.1f}", flush=True)


def lockstep(runs: int, device: str, rounds: int = 12) -> None:
    """Rounds of ``auto``, short ones with few bits, of many runs at once."""
    specs = [fc.Spec(policy="auto", budget_s=450.0, seed=seed, task=fc.TaskSpec(device=device)) for seed in range(runs)]
    live = [(run, run.start()) for run in (Simulation.load(spec, 1) for spec in specs)]
    took = []
    for _ in range(3 + rounds):
        began = time.perf_counter()
        played: list[Any] = step_together(live)
        took.append(1e3 * (time.perf_counter() - began))
        live = [(run, state) for (run, _), (_, state) in zip(live, played, strict=True)]
    each = float(np.median(took[3:]))
    name = f"{runs} runs of auto in lockstep, {device}:"
    print(f"{name:35}a round of all {each:5.1f} ms, {each / runs:5.2f} ms a run", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=["alike", "memory", "runs", "lockstep"])
    parser.add_argument("--rounds", type=int, default=30, help="of the sweep")
    given = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    if "alike" in given.parts:
        alike()
        losses_alike()
    if "memory" in given.parts:
        mlp_memory_runs_out()
        memory_runs_out()
    if "runs" in given.parts:
        races_and_sweeps(default_race(), given.rounds)
    if "lockstep" in given.parts:
        lockstep(64, "cuda")
        lockstep(16, "cpu")


if __name__ == "__main__":
    main()

"""What many tests build: random generators, views of a round, specs, runs and files of digits."""

import struct
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedcell as fc
from fedcell.runs.records import Rounds
from fedcell.sim.loop import Simulation
from fedcell.sim.spec import parse_spec


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def view_of(upload_s: Any, compute_s: Any = 3.0, **columns: Any) -> fc.RoundView:
    """A view of devices with these times; a number is that of all devices.

    Args:
        upload_s: (M,) seconds, or M: then they are spread from 1 to 2 s.
        compute_s: (M,) seconds.
        columns: further fields of the view.
    """
    uploads = np.linspace(1.0, 2.0, upload_s) if isinstance(upload_s, int) else np.asarray(upload_s, dtype=float)
    return fc.RoundView(uploads, np.broadcast_to(np.asarray(compute_s, dtype=float), uploads.shape), **columns)


def full_view(M: int, seed: int = 0, **columns: Any) -> fc.RoundView:
    """A view of M devices drawn at random, in its sixth round, with everything that a server may know."""
    draw = rng(seed)
    upload_s, compute_s = draw.lognormal(-1, 1, M), 6 + draw.exponential(0.75, M)
    known: dict[str, Any] = {
        "ids": np.arange(M),
        "last_round": draw.integers(-1, 5, M),
        "mean_upload_s": draw.lognormal(0, 1, M),
        "profiles": draw.dirichlet(np.full(10, 0.2), M),
        "recent": draw.random(M),
    }
    known["profiles"][draw.random(M) < 0.2] = np.nan
    heard: dict[str, Any] = {name: draw.random(M) for name in ("losses", "rms_losses", "norms")}
    heard |= {"took_s": upload_s + compute_s, "planned_s": upload_s + compute_s, "updates": draw.normal(size=(M, 8))}
    never = draw.random(M) < 0.2
    for column in heard.values():
        column[never] = np.nan
    heard |= {"heard_round": np.where(never, -1, draw.integers(0, 5, M)), "samples": draw.integers(1, 90, M)}
    heard |= {"turns": np.where(never, 0, draw.integers(1, 4, M)), "label_counts": draw.integers(0, 9, (M, 10))}
    return fc.RoundView(upload_s, compute_s, round_index=5, **{**known, **heard, **columns})


def rounds_of(*points: tuple[float, float], devices: int = 2, joules: float | None = None) -> Rounds:
    """A run by the ends of its rounds, in seconds, and the accuracies after them; ``joules`` are spent in each."""
    clock_s, accuracy = np.array(points, dtype=float).reshape(-1, 2).T
    n = clock_s.size
    took_s = np.diff(clock_s, prepend=0.0)
    if joules is None:
        return Rounds(clock_s, took_s, np.full(n, float(devices)), accuracy)
    return Rounds(clock_s, took_s, np.full(n, float(devices)), accuracy, spent_j=np.cumsum(np.full(n, joules)))


def spec_of(**fields: Any) -> fc.Spec:
    """Three rounds of a tiny model, but for these fields; a task is merged into that of the tiny model."""
    return parse_spec({"rounds": 3, **fields, "task": {"hidden": [4], **fields.get("task", {})}}, "test")


def simulation_of(policy: fc.Policy | str, **fields: Any) -> Simulation:
    """The run of `spec_of` with a policy, which need not be one that a spec can name."""
    if isinstance(policy, str):
        return Simulation.load(spec_of(policy=policy, **fields))
    return replace(Simulation.load(spec_of(**fields)), policy=policy)


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    """An array as a file in the idx format."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()

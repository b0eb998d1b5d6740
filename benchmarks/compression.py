"""What compression costs a round: `make bench-compression`, or python benchmarks/compression.py [--quick].

Rounds of the paper's cell (8 devices, MNIST, one thread) with and without it, turn by turn in one run: their least CPU
times and the ratio. A round is all that the simulator does: world, decision, training, mean, evaluation. It is measured
with one epoch, 3,000 samples a device, and with a thirtieth, where training is short and all else counts most. Then one
upload: NumPy's reference against the compiled rounding and a training.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import fedcell as fc
from fedcell.learn.engine import Job
from fedcell.quantisation import restore, round_update
from fedcell.sim.loop import Simulation

LINES = ("quantise:bits=2", "quantise:bits=8", "topk:part=0.01", "sign")
GOAL = 1.15


def least_s(turns: int, *sides: Callable[[], object]) -> list[float]:
    """The least CPU time of each side, in seconds; they take turns."""
    found = [np.inf] * len(sides)
    for _ in range(turns):
        for side, call in enumerate(sides):
            began = time.process_time()
            call()
            found[side] = min(found[side], time.process_time() - began)
    return found


def round_of(line: str, epochs: float) -> Callable[[], object]:
    """One round of a run with this compression, the second one, so that residuals are there."""
    task = fc.TaskSpec(compression=line, epochs=epochs)
    run = Simulation.load(fc.Spec(policy="random:k=8", rounds=9, task=task), threads=1)
    played = run.step(run.start())
    assert played is not None
    return lambda: run.step(played[1])


def rounds(turns: int) -> None:
    """Print what rounds take."""
    for epochs in (1, 0.03):
        sides = [round_of(line, epochs) for line in ("none", *LINES)]
        plain_s, *others_s = least_s(turns, *sides)
        print(f"{f'a round of 8 devices, {epochs:g} epochs':45}{1e3 * plain_s:9.2f} ms")
        for line, took_s in zip(LINES, others_s, strict=True):
            print(f"{'  ' + line:45}{1e3 * took_s:9.2f} ms {took_s / plain_s:7.3f} times")


def uploads(turns: int) -> None:
    """Print what one upload takes."""
    run = Simulation.load(fc.Spec(policy="random:k=1", rounds=1), threads=1)
    engine, start = run.task.engine, run.start().model
    order = np.random.default_rng(0).permutation(3000)[np.newaxis]
    jobs = [Job(start, order), Job(start, order, bits=2)]
    update = engine.train(jobs[:1])[0] - start

    def reference() -> None:
        restore(*round_update(update, engine.tensors, 2, (0,)), engine.tensors, 2)

    few = [replace(job, order=order[:, :10]) for job in jobs]
    whole_s, brief_s, rounded_s, numpy_s = least_s(
        turns,
        lambda: engine.update(jobs[:1]),
        lambda: engine.update(few[:1]),
        lambda: engine.update(few[1:]),
        reference,
    )
    print(f"{'training of 3,000 samples':45}{1e6 * whole_s:9.0f} us")
    print(f"{'training of 10 samples':45}{1e6 * brief_s:9.0f} us")
    print(f"{'rounding of its update, compiled':45}{1e6 * (rounded_s - brief_s):9.0f} us")
    print(f"{'the same by the reference in NumPy':45}{1e6 * numpy_s:9.0f} us")


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few turns, to see that it works")
    turns = 3 if parser.parse_args().quick else 60
    warnings.simplefilter("ignore")
    rounds(turns)
    uploads(10 * turns)
    print(f"Goal: a round with 2 bits at most {GOAL} times one without.")


if __name__ == "__main__":
    main()

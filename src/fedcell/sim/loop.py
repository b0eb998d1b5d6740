"""The loop: federated training of a real model against a simulated clock, one RoundRecord a round."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from fedcell.errors import InputError
from fedcell.learn.engine import Job, Vector
from fedcell.rng import keyed, stream
from fedcell.schedule.estimate import ComputeEstimates
from fedcell.schedule.policy import Indices, Plan, RoundView
from fedcell.schedule.registry import blaming
from fedcell.sim.spec import Spec
from fedcell.sim.task import Task, load_task
from fedcell.world import Conditions, World


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """What one round did.

    Attributes:
        round: its number, from 1.
        clock_s: the simulated time at which it ended.
        round_s: how long it took.
        plan: who was scheduled, with which share of the band.
        delivered: the devices whose models arrived.
        accuracy: of the global model on the test set after the round, a fraction.
        loss: its mean loss there, in nats.
    """

    round: int
    clock_s: float
    round_s: float
    plan: Plan
    delivered: Indices
    accuracy: float
    loss: float


def simulate(spec: Spec, *, threads: int | None = None) -> Iterator[RoundRecord]:
    """Train as the spec says and yield a record after every round.

    The same spec gives the same records, bit for bit, on one machine, whatever the number of threads. Every draw is
    keyed by the seed and the round, so all policies of one seed meet the same devices, channels, data and batches.

    Args:
        spec: one run; an InputError if it has a grid of several.
        threads: for training; all cores by default. Changes the speed, never the result.
    """
    run, *others = spec.runs()
    if others:
        raise InputError(
            f"the spec's grid has {1 + len(others)} runs; simulate one of spec.runs(), or use fedcell race"
        )
    spec = run
    task = load_task(spec.task, spec.devices.count, spec.seed, threads)
    world = world_of(spec, task)
    policy, seed = spec.make_policy(), spec.seed
    model = task.engine.initial(stream(seed, "model"))
    history = History.none(spec.devices.count)
    clock_s = 0.0
    for r in count() if spec.rounds is None else range(spec.rounds):
        conditions = world.conditions(seed, r, clock_s)
        view = look(spec, task, conditions, history, r)
        with blaming(spec.policy):
            plan = policy.decide(view, stream(seed, "policy", r))
        round_s = true_round_s(plan, conditions)
        if clock_s + round_s > spec.budget_s:
            return
        if round_s == 0.0 and spec.rounds is None:
            raise InputError(
                f"{spec.policy} scheduled nobody and its round takes no time: it would never end; give rounds"
            )
        clock_s += round_s
        delivered = arrivals(plan.devices, spec, r)
        model = train(task, model, delivered, seed, r, spec)
        result = task.engine.evaluate(model[np.newaxis])
        history = history.after(r, plan, conditions)
        yield RoundRecord(r + 1, clock_s, round_s, plan, delivered, float(result.accuracy[0]), float(result.loss[0]))
        if spec.target_accuracy is not None and result.accuracy[0] >= spec.target_accuracy:
            return


def world_of(spec: Spec, task: Task) -> World:
    """The world of a run: its devices go through their samples once an epoch, and upload the engine's weights."""
    return spec.world([spec.task.epochs * len(part) for part in task.parts], task.engine.parameters)


@dataclass(frozen=True, eq=False)
class History:
    """What earlier rounds showed the server."""

    last_round: Indices
    mean_upload_s: np.ndarray[tuple[int], np.dtype[np.float64]]
    estimates: ComputeEstimates

    @classmethod
    def none(cls, M: int) -> "History":
        """Before the first round."""
        return cls(np.full(M, -1), np.zeros(M), ComputeEstimates.none(M))

    def after(self, r: int, plan: Plan, conditions: Conditions) -> "History":
        """Return the history after round r."""
        last_round = self.last_round.copy()
        last_round[plan.devices] = r
        mean_upload_s = self.mean_upload_s + (conditions.upload_s - self.mean_upload_s) / (r + 1)
        seen = self.estimates.after(plan.devices, conditions.compute_s[plan.devices])
        return History(last_round, mean_upload_s, seen)


def look(spec: Spec, task: Task, conditions: Conditions, history: History, r: int) -> RoundView:
    """What the server knows at the start of round r: the channels, and of compute times what the spec lets it."""
    compute_s = {
        "perfect": lambda: conditions.compute_s,
        "expected": lambda: conditions.expected_compute_s,
        "observed": history.estimates.compute_s,
    }[spec.knowledge]()
    return RoundView(
        conditions.upload_s,
        compute_s,
        round_index=r,
        ids=np.arange(len(task.parts)),
        last_round=history.last_round,
        mean_upload_s=conditions.upload_s if r == 0 else history.mean_upload_s,
        samples=task.samples,
        label_counts=task.label_counts,
    )


def true_round_s(plan: Plan, conditions: Conditions) -> float:
    """How long the plan really takes: until its last device has delivered, whatever the server believed."""
    if plan.devices.size == 0:
        return plan.round_s
    return float(plan.finish_s(conditions.upload_s, conditions.compute_s).max())


def arrivals(devices: Indices, spec: Spec, r: int) -> Indices:
    """The scheduled devices whose models arrive; each is lost with the spec's probability."""
    if spec.devices.failure == 0.0:
        return devices
    return devices[stream(spec.seed, "failure", r).random(spec.devices.count)[devices] >= spec.devices.failure]


def train(task: Task, model: Vector, delivered: Indices, seed: int, r: int, spec: Spec) -> Vector:
    """Return the mean of the delivered models; the model itself if none was delivered."""
    if delivered.size == 0:
        return model
    orders = keyed(seed, "batches", r)
    jobs = [Job(model, visits(task.parts[i], spec.task.epochs, orders(int(i)))) for i in delivered]
    models = task.engine.train(jobs)
    weights = task.samples[delivered] if spec.task.averaging == "samples" else None
    return np.average(models, axis=0, weights=weights).astype(np.float32, copy=False)


def visits(part: Indices, epochs: int, rng: np.random.Generator) -> Indices:
    """(epochs, D) the order in which a device visits its samples, shuffled anew each epoch."""
    if epochs == 1:  # the paper's case; stacking one row would copy it
        return rng.permutation(part)[np.newaxis]
    return np.stack([rng.permutation(part) for _ in range(epochs)])

"""Policies that decide how long devices train and how much they upload: clock, energy, training and what is learnt."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import simulation_of
from fedcell.learn.engine import Job
from fedcell.quantisation import restore, round_update
from fedcell.rng import keyed
from fedcell.schedule.plan import Links
from fedcell.sim.loop import Simulation, visits
from fedcell.sim.state import State
from fedcell.world import compute_j, transmit_j

SMALL: dict[str, Any] = {"sizes": [60, 61, 62, 63, 64, 65]}
run_of = partial(simulation_of, devices={"count": 6}, task=SMALL)
LAWS = ("density", "blocks:count=20", "power", "dedicated", "ingress:bits_per_s=3e4")


@dataclass(frozen=True)
class Decides(fc.Policy):
    """Schedules devices 1, 3 and 4, and decides the rest as it is told."""

    epochs: tuple[float, ...] | None = None
    bits: tuple[float, ...] | None = None

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> Any:
        return [1, 3, 4]

    def local_epochs(self, view: fc.RoundView, devices: Any) -> Any:
        return None if self.epochs is None else view.epochs * np.array(self.epochs)

    def upload_bits(self, view: fc.RoundView, devices: Any) -> Any:
        return self.bits


def first_round(run: Simulation) -> tuple[fc.RoundRecord, Any]:
    played = run.step(run.start())
    assert played is not None
    return played


def takes_s(law: Any, c: float, share: float, part: float) -> float:
    """One upload of a part of a model, law by law."""
    if isinstance(law, fc.Power):
        assert law.snr is not None
        s = float(law.snr[0])
        return float(part * c * np.log1p(s) / (share * np.log1p(s / share)))
    if isinstance(law, fc.Ingress):
        assert law.pipe_s is not None
        return max(part * c, part * law.pipe_s / share)
    return part * c / share


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("epochs", [None, (1.0, 0.5, 2.0)])
@pytest.mark.parametrize("bits", [None, (32.0, 8.0, 2.0)])
def test_clock_and_energy_are_those_of_the_plan_device_by_device(law: str, epochs: Any, bits: Any) -> None:
    run = run_of(Decides(epochs, bits), cell={"law": law})
    record, _ = first_round(run)
    conditions, plan = run.world.conditions(0, 0, 0.0), record.plan
    laws, cell, ends_s, joules = run.law(conditions.snr), run.world.cell, [], []
    for j, i in enumerate(plan.devices.tolist()):
        work, part = 1.0 if epochs is None else epochs[j], 1.0
        if bits is not None and bits[j] < 32:  # a header, the scales of four tensors, and the levels
            part = (64 + 4 * 32 + bits[j] * run.task.engine.parameters) / cell.model_bits
        mine = laws.take([i])
        upload_s = takes_s(mine, conditions.upload_s[i], plan.shares[j], part)
        ends_s.append(work * conditions.compute_s[i] + upload_s)
        power = mine.power_fraction(conditions.upload_s[[i]], plan.shares[[j]])
        sending_j = transmit_j(run.world.devices.power_w_per_hz[[i]], cell.bandwidth_hz, power, np.array([upload_s]))
        joules.append(work * compute_j(run.world.devices, conditions.compute_s)[i] + sending_j[0])
    assert record.clock_s == pytest.approx(max(ends_s), rel=1e-12)
    assert plan.round_s == pytest.approx(max(ends_s), rel=1e-9)
    np.testing.assert_allclose(record.plan_joules, joules, rtol=1e-9)
    if law in {"density", "power"}:  # the shares are optimal for what was decided: all finish together
        np.testing.assert_allclose(ends_s, max(ends_s), rtol=1e-9)


def test_half_the_epochs_halve_the_training_and_visit_half_the_samples() -> None:
    run = run_of(Decides((0.5, 0.5, 0.5)))
    whole = run_of(Decides())
    (half, after), (full, _) = first_round(run), first_round(whole)
    links = run.true_links(run.world.conditions(0, 0, 0.0))
    np.testing.assert_array_equal(half.plan.seconds(links)[0], 0.5 * full.plan.seconds(links)[0])
    orders = keyed(0, "batches", 0)
    jobs = [
        Job(run.start().model, orders(i).permutation(run.task.parts[i])[: round(0.5 * len(run.task.parts[i]))][None])
        for i in (1, 3, 4)
    ]
    assert [job.order.size for job in jobs] == [30, 32, 32]
    np.testing.assert_array_equal(after.model, run.task.engine.train(jobs).mean(axis=0, dtype=np.float32))


def test_more_epochs_train_longer_with_orders_of_their_own() -> None:
    run = run_of(Decides((1.0, 3.0, 2.0)))
    _, after = first_round(run)
    orders = keyed(0, "batches", 0)
    jobs = [Job(run.start().model, visits(run.task.parts[i], e, orders(i))) for i, e in ((1, 1), (3, 3), (4, 2))]
    assert [job.order.shape for job in jobs] == [(1, 61), (3, 63), (2, 64)]
    np.testing.assert_array_equal(after.model, run.task.engine.train(jobs).mean(axis=0, dtype=np.float32))


def test_uploads_arrive_as_the_plans_bits_round_them_and_runs_resume() -> None:
    run, whole = run_of(Decides(bits=(32.0, 8.0, 2.0))), run_of(Decides())
    (_, after), engine = first_round(run), run.task.engine
    start, devices = run.start().model, np.array([1, 3, 4])
    trained, arrived = engine.train(whole.jobs(whole.start(), devices)), []
    for i, bits, model in zip(devices.tolist(), (32, 8, 2), trained, strict=True):
        levels, scales = round_update(model - start, engine.tensors, min(bits, 16), key=(0, 0, i))
        arrived.append(model if bits == 32 else start + restore(levels, scales, engine.tensors, bits))
    np.testing.assert_array_equal(after.model, np.mean(arrived, axis=0, dtype=np.float32))
    again = State.from_bytes(after.to_bytes())
    for _ in range(2):
        (record, after), (other, again) = run.step(after), run.step(again)  # type: ignore[misc]
        assert (record.accuracy, record.loss) == (other.accuracy, other.loss)
    assert np.array_equal(after.model, again.model)


def test_devices_that_trained_for_their_answers_upload_what_is_decided_then() -> None:
    @dataclass(frozen=True)
    class AsksFirst(Decides):
        def ask(self, view: fc.RoundView, rng: np.random.Generator) -> Any:
            return fc.Question(np.arange(len(view)), "norm")

    asked, plain = run_of(AsksFirst(bits=(2.0, 8.0, 4.0))), run_of(Decides(bits=(2.0, 8.0, 4.0)))
    np.testing.assert_array_equal(first_round(asked)[1].model, first_round(plain)[1].model)


def test_what_is_learnt_is_the_time_of_a_whole_training_and_a_whole_model() -> None:
    run = run_of(Decides((0.5, 1.0, 2.0), (32.0, 8.0, 2.0)), knowledge="observed", task=SMALL | {"epochs": 2})
    _, after = first_round(run)
    conditions = run.world.conditions(0, 0, 0.0)
    known = after.knowledge.compute.known_s(np.array([1, 3, 4]))
    np.testing.assert_allclose(known, conditions.compute_s[[1, 3, 4]], rtol=1e-12)


def test_the_tasks_own_amounts_change_nothing() -> None:
    own, none = run_of(Decides((1.0, 1.0, 1.0), (32.0, 32.0, 32.0))), run_of(Decides())
    (a, _), (b, _) = first_round(own), first_round(none)
    assert (a.clock_s, a.accuracy, a.loss, a.joules) == (b.clock_s, b.accuracy, b.loss, b.joules)


@pytest.mark.parametrize(
    ("epochs", "bits", "says"),
    [
        ((1.0, 1.5, 1.0), None, r"local_epochs returned 1.5; give a fraction of an epoch, or a whole number"),
        ((1.0, 0.0, 1.0), None, r"local_epochs returned .*; return a positive number for each of the 3 devices"),
        ((1.0, 1.0), None, r"local_epochs returned .*; return a positive number for each of the 3 devices"),
        (None, (8.0, np.nan, 8.0), r"upload_bits returned .*; return a positive number for each"),
        (
            None,
            (8.0, 1.0, 8.0),
            r"Decides.upload_bits returned 1.0 bits a weight; give a whole number from 2 to 16, or",
        ),
        (None, (8.0, 2.5, 8.0), r"upload_bits returned 2.5 bits a weight"),
        (None, (8.0, 24.0, 8.0), r"upload_bits returned 24.0 bits a weight"),
    ],
)
def test_what_cannot_be_is_refused(epochs: Any, bits: Any, says: str) -> None:
    view = fc.RoundView(np.ones(6), np.ones(6), weights=1000.0)
    if epochs is not None and len(epochs) == 2:

        class Short(Decides):
            def local_epochs(self, view: fc.RoundView, devices: Any) -> Any:
                return [1.0, 1.0]

        with pytest.raises(fc.InputError, match=says):
            Short().decide(view, np.random.default_rng(0))
        return
    with pytest.raises(fc.InputError, match=says):
        Decides(epochs, bits).decide(view, np.random.default_rng(0))


def test_bits_need_the_size_of_a_model() -> None:
    plan = fc.Plan(np.array([0]), np.ones(1), 1.0, bits=np.array([8.0]))
    with pytest.raises(fc.InputError, match="give the view weights"):
        plan.timing(Links(np.ones(2), np.ones(2)))


def test_a_part_of_a_plan_keeps_every_column() -> None:
    columns = {name: np.arange(3.0) for name in ("starts_s", "epochs", "bits")}
    plan = fc.Plan(np.array([2, 5, 7]), np.array([0.5, 0.25, 0.25]), 4.0, **columns)
    some = plan.take(np.array([True, False, True]))
    assert (some.devices.tolist(), some.shares.tolist(), some.round_s) == ([2, 7], [0.5, 0.25], 4.0)
    assert [getattr(some, name).tolist() for name in columns] == [[0.0, 2.0]] * 3
    assert fc.Plan(np.array([2, 5]), np.ones(2), 4.0).take(np.array([1])).starts().tolist() == [0.0]

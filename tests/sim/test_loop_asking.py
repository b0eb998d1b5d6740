"""Policies that ask before they decide: what they see, what it costs, and that nothing else changes."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fedcell as fc
from builders import simulation_of
from fedcell.learn.aggregator import AggregatorState, LateModels
from fedcell.learn.engine import Job
from fedcell.protocol import Collect, Knowledge, Send, answer_links
from fedcell.protocol.outcome import judge
from fedcell.protocol.round import FORWARD, question_plan
from fedcell.rng import stream
from fedcell.schedule.plan import Links
from fedcell.sim.driver import Driver
from fedcell.sim.loop import Simulation, jobs
from fedcell.sim.requests import step_together
from fedcell.sim.state import State
from fedcell.world import compute_j, transmit_j
from twins import asks
from twins.asks import SEEN

SMALL: dict[str, Any] = {"sizes": [60] * 8}
run_of = partial(simulation_of, devices={"count": 8}, task=SMALL)


@dataclass(frozen=True)
class Asks(asks.Asks):
    """Asks four devices and takes two; 1 and 3 if it asks nobody."""

    d: int = 4
    k: int = 2
    uses_rms: ClassVar[bool] = False
    uses_updates: ClassVar[bool] = False

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> Any:
        chosen = super().choose(view, rng)
        if self.about == "nothing":
            return [int(np.flatnonzero(view.ids == i)[0]) for i in (1, 3)]
        return chosen


def first_round(run: Simulation) -> tuple[fc.RoundRecord, State]:
    SEEN.clear()
    played = run.step(run.start())
    assert played is not None
    return played


@pytest.mark.parametrize("samples", [None, 25])
def test_losses_are_those_of_the_model_and_cost_a_forward_pass(samples: int | None) -> None:
    run = run_of(Asks("loss", samples=samples))
    record, _ = first_round(run)
    [view] = SEEN
    asked = np.sort(stream(0, "policy", 0).permutation(8)[:4])
    assert view.ids is not None
    assert view.ids.tolist() == asked.tolist()
    if samples is None:
        model = run.start().model
        expected = [run.task.engine.losses([Job(model, run.task.parts[i][np.newaxis])])[0] for i in asked]
        assert view.losses is not None
        np.testing.assert_array_equal(view.losses, expected)
    # By hand: a third of the training time for the samples asked about, and 32 bits; then the round itself.
    c, t = conditions_of(run)
    part = FORWARD * (1.0 if samples is None else samples / 60)
    polled_s = fc.allocate(32 / run.world.cell.model_bits * c[asked], part * t[asked]).round_s
    who = record.plan.devices
    assert set(who) <= set(asked)
    expected_s = polled_s + fc.allocate(c[who], t[who]).round_s
    assert record.round_s == pytest.approx(expected_s, rel=1e-12)
    assert record.plan.round_s == pytest.approx(expected_s, rel=1e-12)
    assert record.joules > record.plan_joules.sum()


def test_an_answer_is_sent_with_the_power_of_the_band_that_is_left() -> None:
    """Late devices of the last round still use some: of half a band, half the power."""
    run = run_of(Asks("loss"))
    state, question = run.start(), fc.Question(np.arange(4), "loss")
    conditions = run.world.conditions(0, 0, 0.0)
    late = LateModels(np.array([7]), np.zeros((1, 1), np.float32), np.ones(1), np.array([0.5]))
    whole_j = answers_j(run, state, question)
    half_j = answers_j(run, replace(state, aggregation=AggregatorState(late=late)), question)
    evaluating_j = FORWARD * compute_j(run.world.devices, conditions.compute_s)[:4]
    assert (whole_j[:4] > evaluating_j).all()
    np.testing.assert_allclose(half_j[:4] - evaluating_j, 0.5 * (whole_j[:4] - evaluating_j), rtol=1e-6)
    assert not whole_j[4:].any()


def answers_j(run: Simulation, state: State, question: fc.Question) -> Any:
    """(M,) the joules that answers cost in conditions that do not know of late devices."""
    conditions = run.world.conditions(0, 0, 0.0)
    driver = Driver(run, state, conditions, inputs := run.round_inputs(state, conditions))
    plan, links = question_plan(question, inputs.view, inputs.samples), answer_links(inputs.view)
    send = Send(plan, plan.timing(links), plan.seconds(links)[1], question)

    def asking() -> Any:
        observed = yield send
        yield Collect(send, judge(observed, send.upload_s))

    coroutine = driver.play(asking())
    next(coroutine)
    return driver.answers_j


def conditions_of(run: Simulation) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    conditions = run.world.conditions(0, 0, 0.0)
    return conditions.upload_s, conditions.compute_s


def test_norms_are_those_of_the_updates_and_training_is_paid_for_once() -> None:
    run = run_of(Asks("norm"))
    record, state = first_round(run)
    [view] = SEEN
    start = run.start()
    asked = np.sort(stream(0, "policy", 0).permutation(8)[:4])
    updates = run.task.engine.update(jobs(run.task, start.model, asked, run.spec, 0))
    assert view.norms is not None
    np.testing.assert_array_equal(view.norms, updates.norms())
    who = record.plan.devices
    assert who.tolist() == np.sort(asked[np.argsort(-updates.norms())[:2]]).tolist()
    own = run.task.engine.update(jobs(run.task, start.model, who, run.spec, 0))
    np.testing.assert_array_equal(state.model, own.mean())
    c, t = conditions_of(run)
    trained_s = fc.allocate(32 / run.world.cell.model_bits * c[asked], t[asked]).round_s
    assert record.round_s == pytest.approx(trained_s + c[who].sum(), rel=1e-12)
    # Four devices trained, two sent a model.
    same = run_of(Asks("nothing"))
    everybody = same.world.devices
    training_j = compute_j(everybody, t)[asked].sum()
    sending_j = transmit_j(everybody.power_w_per_hz[who], run.world.cell.bandwidth_hz, 1.0, c[who]).sum()
    assert record.joules == pytest.approx(training_j + sending_j, rel=1e-3)  # but for reports of 32 bits
    # All that were asked are remembered; those that delivered with their training losses, too.
    heard = state.knowledge.to_arrays()
    assert np.flatnonzero(np.isfinite(heard["heard_norms"])).tolist() == asked.tolist()
    assert np.flatnonzero(np.isfinite(heard["heard_losses"])).tolist() == who.tolist()
    assert heard["heard_turns"].tolist() == [int(i in who) for i in range(8)]


def test_the_answers_take_the_downlink_and_the_round_does_not_take_it_again() -> None:
    cell = {"downlink": "multicast"}
    record, _ = first_round(run_of(Asks("norm"), cell=cell))
    free, _ = first_round(run_of(Asks("norm")))
    run = run_of(Asks("nothing"), cell=cell)
    conditions = run.world.conditions(0, 0, 0.0)
    down = run.downlink(np.arange(8), conditions.snr)
    assert down is not None
    asked = np.sort(stream(0, "policy", 0).permutation(8)[:4])
    assert record.round_s - free.round_s == pytest.approx(down.starts_s(asked)[0], rel=1e-9)


def test_observed_times_are_learnt_from_both_stages() -> None:
    for about in ("loss", "norm"):
        run = run_of(Asks(about), knowledge="observed")
        record, state = first_round(run)
        _, t = conditions_of(run)
        known = state.knowledge.compute.known_s(record.plan.devices)
        np.testing.assert_allclose(known, t[record.plan.devices], rtol=1e-9)
        assert (state.knowledge.rounds_available == 1).all()  # of the others the links were seen


def test_a_run_that_asks_resumes_and_advances_with_others() -> None:
    runs = [run_of(Asks("loss")), run_of(Asks("norm", k=3)), run_of(Asks("nothing")), run_of(fc.Greedy())]
    alone: list[list[Any]] = []
    for run in runs:
        state, told = run.start(), []
        while (played := run.step(State.from_bytes(state.to_bytes()))) is not None:
            state = played[1]
            told.append((played[0].clock_s, played[0].accuracy, played[0].plan.devices.tolist(), played[0].joules))
        alone.append(told)
        assert len(told) == 3
    states = [run.start() for run in runs]
    for r in range(3):
        for number, found in enumerate(step_together(list(zip(runs, states, strict=True)))):
            assert isinstance(found, tuple)
            record, states[number] = found
            now = (record.clock_s, record.accuracy, record.plan.devices.tolist(), record.joules)
            assert now == alone[number][r]


def test_whoever_leaves_has_not_answered(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    lines = ["device,from_s,until_s"] + [f"{i},0,{0.01 if i % 2 else 1000}" for i in range(8)]
    trace.write_text("\n".join(lines) + "\n")
    run = run_of(Asks("loss", d=8), devices={"count": 8, "availability": f"trace:{trace},repeat=false"})
    record, _ = first_round(run)
    assert SEEN[0].ids is not None
    assert (SEEN[0].ids % 2 == 0).all()
    assert record.plan.devices.size == 2
    lines = ["device,from_s,until_s"] + [f"{i},0,0.01" for i in range(8)]
    trace.write_text("\n".join(lines) + "\n")
    run = run_of(Asks("norm", d=8), devices={"count": 8, "availability": f"trace:{trace},repeat=false"}, rounds=1)
    record, state = first_round(run)
    assert not SEEN
    assert record.plan.devices.size == 0
    assert record.round_s == record.plan.round_s > 0.0
    np.testing.assert_array_equal(state.model, run.start().model)


@dataclass(frozen=True)
class Garbage(Asks):
    """Asks for devices that are not there."""

    def ask(self, view: fc.RoundView, rng: np.random.Generator) -> fc.Question | None:
        return fc.Question(np.array([3, 99]), "loss")


def test_garbage_in_a_question_is_said() -> None:
    with pytest.raises(fc.InputError, match=r"Garbage.ask returned device 99, but the devices are 0 to 7"):
        first_round(run_of(Garbage()))


def test_more_devices_than_there_are_is_a_mistake_of_policies_that_ask_too() -> None:
    with pytest.raises(fc.InputError, match="k is 9, but the cell has 8 devices; give a k of at most 8"):
        first_round(run_of(Asks("norm", d=8, k=9)))


def test_views_say_what_was_heard() -> None:
    SEEN.clear()
    run = run_of(Asks("nothing"), budget_s=500.0, budget_j=900.0)
    state, played = run.start(), []
    for _ in range(2):
        found = run.step(state)
        assert found is not None
        played.append(found)
        state = found[1]
    first, second = SEEN
    record = played[0][0]
    for name in ("losses", "norms", "took_s", "planned_s"):
        assert np.isnan(getattr(first, name)).all()
        assert np.flatnonzero(np.isfinite(getattr(second, name))).tolist() == [1, 3], name
    updates = run.task.engine.update(jobs(run.task, run.start().model, record.delivered, run.spec, 0))
    np.testing.assert_array_equal(second.losses[[1, 3]], updates.losses)  # type: ignore[index]
    np.testing.assert_array_equal(second.norms[[1, 3]], updates.norms())  # type: ignore[index]
    assert (first.round_losses.tolist(), second.round_losses.tolist()) == ([], [updates.losses.mean()])  # type: ignore[union-attr]
    np.testing.assert_allclose(second.took_s[[1, 3]], record.round_s)  # type: ignore[index]
    np.testing.assert_allclose(second.planned_s[[1, 3]], record.round_s)  # type: ignore[index]
    assert second.heard_round is not None
    assert second.heard_round.tolist() == [-1, 0, -1, 0, -1, -1, -1, -1]
    assert second.presence is not None
    assert second.presence.tolist() == [1.0] * 8
    assert second.turns is not None
    assert second.turns.tolist() == [0, 1, 0, 1, 0, 0, 0, 0]
    assert (second.clock_s, second.left_s) == (record.clock_s, 500.0 - record.clock_s)
    assert second.left_j == pytest.approx(900.0 - record.joules)


def test_rounds_that_brought_nothing_have_no_loss() -> None:
    known = Knowledge.empty(3).with_losses(1, np.array([0.5, np.nan, 1.5])).with_losses(3, np.full(2, np.nan))
    known = Knowledge.from_arrays(known.to_arrays()).grow(4)
    view = known.view(Links(np.ones(4), np.ones(4)), 5)
    np.testing.assert_array_equal(view.round_losses, [np.nan, 1.0, np.nan, np.nan, np.nan])


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("losses", [0.5, np.inf], r"losses\[1\] is inf; give finite numbers, or NaN throughout"),
        ("norms", ["a", "b"], "norms is of type <U1; give numbers, one for each device"),
        ("presence", [0.5, np.nan], r"presence\[1\] is nan; give finite numbers"),
        ("turns", [1], r"turns has shape \(1,\); give one entry for each of the 2 devices"),
        ("updates", [1.0, 2.0], r"updates has shape \(2,\)"),
    ],
)
def test_bad_columns_are_refused(column: str, values: Any, message: str) -> None:
    with pytest.raises(fc.InputError, match=message):
        fc.RoundView(np.array([1.0, 2.0]), np.array([3.0, 4.0]), **{column: values})

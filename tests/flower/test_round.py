"""Judging a round's replies, with Flower's own messages and strategies."""

from dataclasses import dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from fedcell.errors import InputError
from fedcell.flower.client import ANSWER, RECORD, Report
from fedcell.flower.radio import Device, Grant
from fedcell.flower.replies import faults, train_requirements
from fedcell.flower.round import Arrivals, PlannedRound, _read, configs, observe
from fedcell.flower.scheduled import Scheduled
from fedcell.protocol import Knowledge, Observed
from fedcell.protocol.outcome import judge
from fedcell.schedule.plan import Links, Plan, Timing
from fedcell.schedule.view import RoundView
from fedcell.types import Floats

NAN = float("nan")
UPLOAD_S, COMPUTE_S = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])


def message(node: int, **records: Any) -> Message:
    return Message(RecordDict(records), node, "train")


def reply(node: int, values: Any = (1.0, 2.0), train_s: float | None = None, **metrics: float) -> Message:
    arrays = ArrayRecord({"w": Array(np.array(values, dtype=np.float32))})
    records: dict[str, Any] = {"arrays": arrays, "metrics": MetricRecord({"num-examples": 1, **metrics})}
    if train_s is not None:
        records[RECORD] = ConfigRecord({"train_s": train_s})
    return Message(RecordDict(records), reply_to=message(node))


def planned(link_known: bool = True) -> PlannedRound:
    """Three devices, node ids 10, 11 and 12; shares of a half, a quarter, a quarter: done after 6, 13 and 18 s."""
    devices = [Device(str(i), Report()) for i in range(3)]
    plan = Plan(np.arange(3), np.array([0.5, 0.25, 0.25]), 18.0)
    look = Links(UPLOAD_S if link_known else np.full(3, NAN), np.full(3, NAN))
    view = RoundView(UPLOAD_S, COMPUTE_S, ids=np.arange(3))
    grant = Grant(0, devices, plan, plan.finish_s(UPLOAD_S, COMPUTE_S))
    return PlannedRound([10, 11, 12], look, view, grant, known=np.full(3, True))


def played(replies: dict[int, tuple[Message, float]], measured: Timing | None = None, **kwargs: Any) -> Any:
    """With a slack of 2 and a second's grace; the wait was over after 99 s, or when the last reply had come."""
    of = kwargs.get("of") or planned(kwargs.get("link_known", True))
    allowed_s = of.allowed_s(2.0, 1.0 if measured is None else 0.0)
    demands = train_requirements(FedAvg(), reply(10).content.array_records["arrays"])
    ended_s = max([99.0, *(came_s for _, came_s in replies.values())])
    came = Arrivals(replies, measured, allowed_s, ended_s, in_turn=kwargs.get("in_turn", False))
    observed, usable, why = observe(of, came, lambda replies: faults(replies, demands))
    outcome = judge(observed, of.upload_s())
    kept = [usable[node] for node, used in zip(of.chosen, outcome.delivered, strict=True) if used]
    return SimpleNamespace(**vars(outcome), kept=kept, timing=observed.timing, why=why)


def test_replies_in_time_are_kept_and_what_the_link_does_not_explain_was_compute() -> None:
    done = played({10: (reply(10), 7.0), 11: (reply(11), 12.0), 12: (reply(12, train_s=9.0), 20.0)})
    assert [m.metadata.src_node_id for m in done.kept] == [10, 11, 12]
    assert done.delivered.all()
    assert not done.late.any()
    # 7 - 1/0.5, 12 - 2/0.25, and 20 - 3/0.25 = 8, but the node itself says 9.
    assert done.learnt.began_s.tolist() == [5.0, 4.0, 9.0]
    assert RECORD not in done.kept[2].content


def test_with_an_unknown_link_the_nodes_own_clock_splits_the_time_and_else_the_plan() -> None:
    done = played({10: (reply(10, train_s=3.0), 7.0), 11: (reply(11), 26.0)}, link_known=False)
    assert done.learnt.began_s[:2].tolist() == [3.0, 26.0 * 5 / 13]


def test_who_comes_after_slack_times_the_plan_is_left_out_and_a_miss_is_no_time() -> None:
    done = played({10: (reply(10), 13.5), 11: (reply(11), 13.0)})  # allowed: 2 x 6 + 1 and 2 x 13 + 1
    assert done.late.tolist() == [True, False, False]
    assert done.delivered.tolist() == [False, True, False]
    assert done.timing.finish_s[0] == 13.5
    assert np.isnan(done.timing.finish_s[2])
    # The late one is as slow as it was. How long the missing one was waited for says nothing of it, but that it failed.
    np.testing.assert_array_equal(done.learnt.finish_s, [13.5, 13.0, NAN])
    np.testing.assert_array_equal(done.learnt.began_s, [11.5, 5.0, NAN])
    assert done.learnt.censored is not None
    assert not done.learnt.censored.any()
    assert done.failed.tolist() == [False, False, True]


def test_of_whom_too_little_is_known_nothing_is_demanded_by_the_plan() -> None:
    of = replace(planned(), known=np.array([False, True, False]))
    assert of.allowed_s(2.0, 1.0).tolist() == [np.inf, 27.0, np.inf]
    done = played({10: (reply(10), 1e3), 11: (reply(11), 13.0)}, of=of)
    assert done.delivered.tolist() == [True, True, False]
    np.testing.assert_array_equal(done.learnt.finish_s, [1e3, 13.0, NAN])
    assert done.failed.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("known", "came_s", "limits_s"),
    [
        ([True, True, True], [NAN, NAN, NAN], [13.0, 27.0, 37.0]),  # each his own: slack and grace
        ([True, False, True], [NAN, NAN, NAN], [13.0, 131.0, 37.0]),  # ten times its plan, which the others give
        ([True, False, True], [4.0, NAN, NAN], [13.0, 131.0, 37.0]),
        ([True, False, True], [4.0, NAN, 6.0], [13.0, 51.0, 37.0]),  # half are in: ten times their median
        ([False, False, False], [NAN, NAN, NAN], [np.inf] * 3),  # nothing to go by
        ([False, False, False], [7.0, NAN, NAN], [np.inf] * 3),
        ([False, False, False], [7.0, NAN, 9.0], [81.0] * 3),
    ],
)
def test_an_unknown_device_has_the_limit_of_the_fleet(known: Any, came_s: Any, limits_s: Any) -> None:
    of = replace(planned(), known=np.array(known))
    assert of.limits_s(np.array(came_s), 2.0, 1.0).tolist() == limits_s


def test_nodes_that_take_turns_are_as_slow_as_they_trained_and_have_no_link() -> None:
    """The second one's was the first training of its process; the third has no clock of its own."""
    came = {10: (reply(10, train_s=3.0), 50.0), 11: (reply(11, train_s=9.0), 60.0), 12: (reply(12), 70.0)}
    came[11][0].content.config_records[RECORD]["first"] = True
    done = played(came, link_known=False, in_turn=True, of=replace(planned(False), known=np.zeros(3, bool)))
    assert done.delivered.all()
    assert done.timing.finish_s.tolist() == [50.0, 60.0, 70.0]  # when they came is said as it was
    np.testing.assert_array_equal(done.learnt.began_s, [3.0, NAN, NAN])
    np.testing.assert_array_equal(done.learnt.finish_s, [3.0, NAN, NAN])
    # A link that is reported still counts: 1 s over half of it.
    done = played({10: (reply(10, train_s=3.0), 50.0)}, in_turn=True, of=replace(planned(), known=np.zeros(3, bool)))
    assert (done.learnt.began_s[0], done.learnt.finish_s[0]) == (3.0, 5.0)


def test_whom_the_strategy_left_out_is_not_in_the_round() -> None:
    rest = planned().only([10, 12])
    assert rest.chosen == [10, 12]
    assert rest.plan.shares.tolist() == [0.5, 0.25]
    assert (rest.plan.round_s, rest.grant.finish_s.tolist()) == (18.0, [6.0, 18.0])
    done = played({10: (reply(10), 6.0), 12: (reply(12), 18.0)}, of=rest)
    assert done.delivered.tolist() == [True, True]
    assert planned().only([10, 11, 12]).plan.devices.tolist() == [0, 1, 2]


def test_a_radios_own_timing_counts_without_grace() -> None:
    timing = Timing(np.array([4.0, 5.0, 6.0]), np.array([12.1, 13.0, 18.0]))
    done = played({n: (reply(n), 30.0) for n in (10, 11, 12)}, timing)
    assert done.late.tolist() == [True, False, False]
    assert done.timing is timing


def test_a_late_device_has_trained_as_long_as_was_measured_here_and_in_the_simulator() -> None:
    timing = Timing(np.array([4.0, 5.0, 6.0]), np.array([12.1, 13.0, 18.0]))
    done = played({n: (reply(n), 30.0) for n in (10, 11, 12)}, timing)
    of = planned()
    went = judge(Observed(timing, of.allowed_s(2.0, 0.0)), of.upload_s())
    assert went.delivered.tolist() == done.delivered.tolist() == [False, True, True]
    for learnt in (went.learnt, done.learnt):
        assert learnt.began_s.tolist() == [4.0, 5.0, 6.0]
        assert learnt.finish_s.tolist() == [12.1, 13.0, 18.0]
    look, view = Links(UPLOAD_S, np.full(3, NAN)), of.view
    for learnt in (went.learnt, done.learnt):
        after = Knowledge.empty(3).with_round(view, of.plan, look, learnt, 18.0)
        assert after.compute.mean_s.tolist() == [4.0, 5.0, 6.0]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda: reply(11, (1.0, NAN)), "not finite"),
        (lambda: reply(11, (1.0, np.inf)), "not finite"),
        (lambda: reply(11, (1.0, 2.0, 3.0)), "has the shape (3,), the model's has (2,)"),
        (lambda: reply(11, loss=1.0), "arrays or metrics differ"),
        (lambda: Message(Error(1, "ZeroDivisionError"), reply_to=message(11)), "its app failed: ZeroDivisionError"),
    ],
)
def test_a_reply_that_would_spoil_the_mean_is_left_out_and_teaches_nothing(bad: Any, reason: str) -> None:
    done = played({10: (reply(10), 6.0), 11: (bad(), 13.0), 12: (reply(12), 18.0)})
    assert done.delivered.tolist() == [True, False, True]
    assert not done.late.any()
    assert np.isnan(done.learnt.began_s).tolist() == [False, True, False]
    assert list(done.why) == [11]
    assert reason in done.why[11]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"slack": 0.5}, "slack is 0.5"),
        ({"nodes": 0}, "nodes is 0"),
        ({"budget_s": NAN}, "budget_s is nan"),
        ({"target_accuracy": 80}, "target_accuracy is 80; give a fraction"),
        ({"policy": "gredy"}, "did you mean 'greedy'"),
        ({"strategy": "FedAvg"}, "strategy is 'FedAvg'; give an object of flwr.serverapp.strategy"),
    ],
)
def test_a_bad_setting_is_refused_at_once(settings: dict[str, Any], complaint: str) -> None:
    given: dict[str, Any] = {"strategy": FedAvg(), "policy": "greedy"} | settings
    with pytest.raises(InputError, match=complaint):
        Scheduled(given.pop("strategy"), given.pop("policy"), **given)


def test_epochs_and_bits_of_the_plan_reach_the_nodes_and_what_is_expected_of_them() -> None:
    of = planned()
    plan = replace(of.plan, epochs=np.array([1.0, 3.0, 0.5]), bits=np.array([32.0, 16.0, 8.0]))
    view = replace(of.view, weights=24.0, tensors=2)
    of = replace(of, view=view, grant=replace(of.grant, plan=plan, finish_s=plan.timing(view).finish_s))
    told = configs(of, seed=7)
    assert [one["fedcell-epochs"] for one in told] == [1.0, 3.0, 0.5]
    assert [one["fedcell-bits"] for one in told] == [32.0, 16.0, 8.0]
    assert [one["fedcell-key"] for one in told] == ["7 0 0", "7 0 1", "7 0 2"]
    assert "fedcell-wants-sums" not in told[0]
    assert configs(of, seed=7, wants_sums=True)[0]["fedcell-wants-sums"]
    # t + c/g with 1, 3 and 0.5 times the training, and 1, (128 + 16 x 24)/768 and (128 + 8 x 24)/768 of the upload.
    assert [one["fedcell-finish-s"] for one in told] == [6.0, 15.0 + 8.0 * 2 / 3, 3.0 + 12.0 * 5 / 12]
    assert of.compute_s().tolist() == [4.0, 15.0, 3.0]
    assert of.upload_s().tolist() == [2.0, 8.0 * 2 / 3, 12.0 * 5 / 12]
    assert of.only([12]).plan.bits == np.array([8.0])
    assert "fedcell-epochs" not in configs(planned(), seed=7)[0]


@dataclass(frozen=True, eq=False)
class PlanWithRates(Plan):
    """A plan with another decision, declared as those of Plan are."""

    lr_scale: Floats | None = field(default=None, metadata={"per": "device"})


def test_a_decision_that_a_plan_declares_reaches_the_nodes() -> None:
    of = planned()
    fixed = {one.name: getattr(of.plan, one.name) for one in fields(of.plan)}
    rated = replace(of, grant=replace(of.grant, plan=PlanWithRates(**fixed, lr_scale=np.array([1.0, 0.5, 2.0]))))
    assert [one["fedcell-lr-scale"] for one in configs(rated, seed=7)] == [1.0, 0.5, 2.0]
    unknown = replace(of, grant=replace(of.grant, plan=PlanWithRates(**fixed)))
    assert configs(unknown, seed=7) == configs(of, seed=7)


@pytest.mark.parametrize(
    ("answer", "value", "fault"),
    [
        (MetricRecord({"loss": 0.5}), 0.5, None),
        (MetricRecord({"loss": -0.5}), NAN, "its 'loss' is -0.5, not a number from 0 to 1e+15"),
        (MetricRecord({"norm": 0.5}), NAN, "its reply is no answer; its ClientApp needs fedcell.flower.answer_loss"),
        (ConfigRecord({"loss": 0.5}), NAN, "its reply is no answer; its ClientApp needs fedcell.flower.answer_loss"),
        (None, NAN, "its reply is no answer; its ClientApp needs fedcell.flower.answer_loss"),
    ],
)
def test_an_answer_is_a_number_of_that_name_in_its_record(answer: Any, value: float, fault: str | None) -> None:
    records = {} if answer is None else {ANSWER: answer}
    found, why = _read(Message(RecordDict(records), reply_to=message(10)), "loss")
    assert found == pytest.approx(value, nan_ok=True)
    assert (why or "").startswith(fault or "")
    assert (why is None) == (fault is None)


def test_an_app_that_failed_gave_no_answer() -> None:
    failed = Message(Error(1, "Zero\nDivision" + "x" * 300), reply_to=message(10))
    value, why = _read(failed, "norm")
    assert np.isnan(value)
    assert why is not None
    assert why.startswith("its app failed: Zero Divisionxxx")
    assert why.endswith("x; its ClientApp needs the mod fedcell.flower.upload_when_asked")
    assert len(why) < 290

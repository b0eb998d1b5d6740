"""What the server learns of devices: reports, measurements, and the same estimates as the simulator's."""

import math
import types
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Context
from flwr.clientapp import ClientApp

from fedcell.errors import InputError
from fedcell.flower import nodes
from fedcell.flower.client import Report, parse_report, report_device
from fedcell.flower.nodes import Nodes, Roster
from fedcell.flower.radio import CellRadio, Device, Grant, SimulatedRadio
from fedcell.protocol import Knowledge
from fedcell.protocol.estimates import Estimates
from fedcell.schedule.plan import Links, Plan, Timing
from fedcell.schedule.view import RoundView
from fedcell.world import Cell, DayNight, Devices, World
from flower.local import LocalGrid, node

NAN = math.nan


def devices(*reports: Report) -> list[Device]:
    return [Device(str(i), report) for i, report in enumerate(reports)]


def nothing(M: int) -> Links:
    return Links(np.full(M, NAN), np.full(M, NAN))


def plan_of(shares: list[float]) -> Plan:
    return Plan(np.arange(len(shares)), np.array(shares), 1.0)


def after(roster: Roster, view: RoundView, plan: Plan, look: Links, timing: Timing) -> Roster:
    return replace(roster, knowledge=roster.knowledge.with_round(view, plan, look, timing, 0.0))


def test_devices_are_numbered_by_number_then_name_and_keep_their_numbers() -> None:
    first = Roster.empty().with_devices(["10", "2", "bob", "0"])
    assert first.names == ("0", "2", "10", "bob")
    assert first.with_devices(["1", "2", "alice"]).names == ("0", "2", "10", "bob", "1", "alice")
    assert first.with_devices(["2"]) is first


def test_a_device_that_says_nothing_is_taken_as_the_median_of_the_others() -> None:
    there = devices(Report(compute_s=1.0), Report(compute_s=5.0), Report(compute_s=2.0), Report())
    known = Roster.empty().with_devices([d.name for d in there])
    view = known.view(there, Links(np.array([0.1, 0.4, 0.3, NAN]), np.full(4, NAN)), 0)
    assert view.compute_s.tolist() == [1.0, 5.0, 2.0, 2.0]
    assert view.upload_s.tolist() == [0.1, 0.4, 0.3, 0.3]
    assert known.unknown(there, nothing(4))["speed"].tolist() == [False, False, False, True]


def test_where_nobody_knows_anything_all_are_alike() -> None:
    there = devices(Report(), Report())
    view = Roster.empty().with_devices(["0", "1"]).view(there, nothing(2), 0)
    assert view.upload_s.tolist() == [1.0, 1.0]
    assert view.compute_s.tolist() == [0.0, 0.0]


def test_what_rounds_show_replaces_the_report_and_is_the_simulators_estimate() -> None:
    there = devices(Report(compute_s=1.0), Report(compute_s=1.0), Report(compute_s=1.0))
    look = Links(np.array([0.1, 0.2, 0.3]), np.full(3, NAN))
    known, twin = Roster.empty().with_devices(["0", "1", "2"]), Estimates.empty(3)
    plan = Plan(np.array([0, 2]), np.array([0.5, 0.5]), 1.0)
    for began in ([4.0, 7.0], [6.0, 9.0], [5.0, 5.0]):
        view = known.view(there, look, 0)
        known = after(known, view, plan, look, Timing(np.array(began), np.array(began) + 1))
        twin = twin.with_observations(plan.devices, np.array(began))
    assert known.view(there, look, 3).compute_s.tolist() == [twin.mean_s[0], 1.0, twin.mean_s[2]]
    assert known.knowledge.last_round.tolist() == [0, -1, 0]


def test_an_unknown_link_is_learnt_from_what_an_upload_took_with_its_share() -> None:
    there = devices(Report(compute_s=1.0), Report(compute_s=1.0))
    known = Roster.empty().with_devices(["0", "1"])
    view = known.view(there, nothing(2), 0)
    known = after(known, view, plan_of([0.25, 0.75]), nothing(2), Timing(np.array([1.0, NAN]), np.array([9.0, NAN])))
    assert known.view(there, nothing(2), 1).upload_s.tolist() == [2.0, 2.0]  # 8 s with a quarter; the other: its median


def test_mean_upload_is_of_the_rounds_in_which_a_device_was_there() -> None:
    known, look = Roster.empty().with_devices(["0", "1"]), Links(np.array([1.0, 3.0]), np.zeros(2))
    both = devices(Report(), Report())
    known = after(known, known.view(both, look, 0), plan_of([1.0]), look, Timing(np.zeros(1), np.ones(1)))
    alone = Links(np.array([5.0]), np.zeros(1))
    known = after(known, known.view(both[:1], alone, 1), plan_of([1.0]), alone, Timing(np.zeros(1), np.ones(1)))
    means = known.view(both, look, 2).mean_upload_s
    assert means is not None
    assert means.tolist() == [3.0, 3.0]


def test_knowledge_is_saved_and_read_back() -> None:
    known, look = Roster.empty().with_devices(["a", "b"]), nothing(2)
    view = known.view([Device("a", Report()), Device("b", Report())], look, 0)
    known = after(known, view, plan_of([0.4, 0.6]), look, Timing(np.array([1.0, 2.0]), np.array([3.0, 5.0])))
    again = Knowledge.from_arrays(known.knowledge.to_arrays())
    for name, array in known.knowledge.to_arrays().items():
        np.testing.assert_array_equal(array, again.to_arrays()[name], err_msg=name)


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({"snr_db": NAN}, "snr_db is nan; give a number from -1000 to 1000"),
        ({"upload_s": -1.0}, "upload_s is -1.0"),
        ({"samples": True}, "samples is True"),
        ({"samples": "many"}, "samples is 'many'"),
        ({"sampels": 3}, "unknown field 'sampels'; did you mean 'samples'?"),
        ({"name": "x" * 201}, "at most 200 characters"),
        ({"name": "a\nb"}, "all printable"),
        ({"rate_bps": [1.0]}, r"rate_bps is \[1.0\]"),
    ],
)
def test_a_bad_report_says_what_is_wrong(record: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        parse_report(record)


def test_expected_compute_time_is_the_papers_mean() -> None:
    assert Report(samples=3000, seconds_per_sample=2e-3, samples_per_second=4000).expected_compute_s() == 6.75
    assert Report(samples=3000, samples_per_second=1000).expected_compute_s() == 3.0
    assert Report(samples=3000, compute_s=1.5).expected_compute_s() == 1.5
    assert math.isnan(Report(samples=3000).expected_compute_s())


def test_a_cell_turns_snr_rate_or_seconds_into_upload_times() -> None:
    cell = Cell(bandwidth_hz=1e6, model_bits=2_000_000)
    there = devices(Report(snr_db=10 * math.log10(3)), Report(rate_bps=4e6), Report(upload_s=7.0), Report())
    look = CellRadio(cell).look(there, 0, 0.0)
    assert look.upload_s[:3] == pytest.approx([1.0, 0.5, 7.0])
    assert math.isnan(look.upload_s[3])
    assert np.isnan(look.compute_s).all()


def test_a_simulated_radio_draws_the_simulators_world_and_takes_what_the_plan_really_takes() -> None:
    world = World(Cell(), Devices(count=5))
    radio = SimulatedRadio(world, seed=3, knowledge="expected")
    there = [Device("4", Report()), Device("1", Report())]
    truth = world.conditions(3, 2, 10.0)
    look = radio.look(there, 2, 10.0)
    assert look.upload_s.tolist() == truth.upload_s[[4, 1]].tolist()
    assert look.compute_s.tolist() == truth.expected_compute_s[[4, 1]].tolist()
    for name in ("5", "x", "-1", "٣"):
        with pytest.raises(InputError, match="partition-id from 0 to 4"):
            radio.look([Device(name, Report())], 0, 0.0)


def test_a_simulated_radio_believes_what_the_simulators_server_does() -> None:
    world = World(Cell(csi_error_db=5.0), Devices(count=3))
    radio, there = SimulatedRadio(world, seed=3), [Device("2", Report()), Device("0", Report())]
    truth, look = world.conditions(3, 2, 10.0), radio.look(there, 2, 10.0)
    assert look.upload_s.tolist() == truth.believed_upload_s[[2, 0]].tolist() != truth.upload_s[[2, 0]].tolist()
    plan = Plan(np.array([0]), np.array([1.0]), 1.0)
    timing = radio.measure(Grant(2, there, plan, np.array([1.0])))
    assert timing is not None
    assert timing.finish_s.tolist() == [truth.compute_s[2] + truth.upload_s[2]]


def test_nodes_come_and_go_by_themselves() -> None:
    with pytest.raises(InputError, match=r"availability is for the simulator, .* set it to 'always'"):
        SimulatedRadio(World(availability=DayNight()), seed=3)


def test_numbers_that_users_meet() -> None:
    assert (nodes.MAX_QUERIES, nodes.OUTLIER_FACTOR) == (5, 10.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that fedcell sees; it moves by what is slept."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    stand_in = types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    for name in ("nodes", "messages"):
        monkeypatch.setattr(f"fedcell.flower.{name}.time", stand_in)
    return now


def answering(*says: dict[str, Any] | Exception | None) -> LocalGrid:
    """Nodes 1, 2, ... that answer so, fail so, or do not know the question."""
    apps = {}
    for number, said in enumerate(says, start=1):
        app = ClientApp()
        if said is not None:

            def report(_: Context, said: Any = said) -> Report:
                if isinstance(said, Exception):
                    raise said
                return Report(**said)

            report_device(app, report)
        apps[number] = node(app, number)
    return LocalGrid(apps)


def test_nodes_that_have_answered_are_devices_and_are_not_asked_again(clock: list[float], log: Any) -> None:
    grid, found = answering({"samples": 5}, {"name": "pi"}), Nodes(answer_s=10.0)
    assert found.discover_nodes(grid) == [1, 2]
    assert found.devices == {1: Device("1", Report(name="1", samples=5)), 2: Device("pi", Report(name="pi"))}
    assert clock[0] < 110.0
    del grid.nodes[1]
    grid.nodes |= {3: answering({"samples": 7}).nodes[1]}
    assert found.discover_nodes(grid) == [2, 3]
    grid.delay_s = lambda _: math.inf
    grid.nodes |= {4: answering({"samples": 7}).nodes[1]}
    now = clock[0]
    assert found.discover_nodes(grid) == [2, 3]
    assert clock[0] == now  # who joins late is not waited for
    assert not [record for record in log.records if "has not answered" not in record.getMessage()]


def test_a_node_that_never_answers_is_waited_for_once_and_named(clock: list[float], log: Any) -> None:
    grid, found = answering({}, {}), Nodes(answer_s=10.0)
    grid.delay_s = lambda message: math.inf if message.metadata.dst_node_id == 2 else 0.0
    assert found.discover_nodes(grid) == [1]
    assert clock[0] == pytest.approx(110.0, abs=0.3)
    assert found.discover_nodes(grid) == [1]
    assert clock[0] == pytest.approx(110.0, abs=0.3)
    assert found.discover_nodes(grid, ask_all=True) == [1]
    assert clock[0] < 121.0
    named = [record.getMessage() for record in log.records]
    assert named == ["fedcell: node 2 has not answered yet and is not scheduled until it does"]


def test_a_report_that_cannot_be_used_is_asked_for_again_a_few_times(clock: list[float], log: Any) -> None:
    grid, found = answering(ValueError("no sensor"), None), Nodes(answer_s=10.0)
    asked: list[int] = []
    push = grid.push_messages
    grid.push_messages = lambda messages: push([asked.append(m.metadata.dst_node_id) or m for m in messages])  # type: ignore[func-returns-value, method-assign]
    for _ in range(8):
        assert found.discover_nodes(grid) == [1, 2]
    assert asked == [1, 2] * 5
    assert found.devices == {1: Device("1", Report()), 2: Device("2", Report())}
    named = [record.getMessage() for record in log.records]
    assert named[0] == "fedcell: the report of device 1 cannot be used: ValueError: no sensor"
    assert named[1].startswith("fedcell: the report of device 2 cannot be used: does its app call report_device? (")
    assert len(named) == 2
    grid.nodes[1] = answering({"samples": 3}).nodes[1]
    found.discover_nodes(grid, ask_all=True)
    assert found.devices[1].report.samples == 3
    grid.nodes[1] = answering(ValueError("no sensor")).nodes[1]
    found.discover_nodes(grid, ask_all=True)
    assert found.devices[1].report.samples == 3  # what it last said that could be used


def test_of_two_nodes_with_a_name_the_later_one_counts(clock: list[float], log: Any) -> None:
    grid, found = answering({"name": "a"}, {"name": "b"}, {"name": "a"}), Nodes(answer_s=10.0)
    assert found.discover_nodes(grid) == [2, 3]
    (said,) = [record.getMessage() for record in log.records]
    assert said.startswith("fedcell: two nodes have the name a; assuming that node 1 has restarted as 3")


def test_nodes_are_waited_for_until_enough_are_there(clock: list[float], log: Any) -> None:
    Nodes(1.0).wait_for(answering({}, {}), 2, 60.0)
    assert (clock[0], log.records) == (100.0, [])
    Nodes(1.0).wait_for(answering({}), 2, 60.0)
    assert clock[0] == pytest.approx(160.0, abs=0.3)
    said = [record.getMessage() for record in log.records]
    assert said[0] == "fedcell: 1 of 2 nodes are connected; waiting up to 60 s for the others"
    assert said[1] == "fedcell: continuing with 1 of the 2 expected nodes"
    with pytest.raises(InputError, match="no node has connected within 5 s; start SuperNodes, then run again"):
        Nodes(1.0).wait_for(answering(), 2, 5.0)


def profiled(*profiles: Any) -> list[Device]:
    return devices(*(Report(profile=profile) for profile in profiles))


def known(roster: Roster) -> list[list[float]]:
    found: list[list[float]] = roster.knowledge.profiles.tolist()
    return found


def test_profiles_are_as_long_as_most_devices_have_them() -> None:
    there = profiled([1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0], None)
    roster = Roster.empty().with_devices([device.name for device in there])
    assert roster.with_profiles(profiled(None)) is roster
    first = roster.with_profiles(there)
    np.testing.assert_array_equal(known(first), [[1, 2], [NAN, NAN], [6, 7], [NAN, NAN]])
    assert first.odd_profiles(there) == ["1"]
    later = first.with_profiles([Device("1", Report(profile=[8.0, 9.0])), Device("3", Report(profile=[1.0] * 3))])
    np.testing.assert_array_equal(known(later), [[1, 2], [8, 9], [6, 7], [NAN, NAN]])
    longer = later.with_profiles(profiled([1.0] * 3, [1.0] * 3, None, [1.0] * 3))
    np.testing.assert_array_equal(known(longer), [[1] * 3, [1] * 3, [NAN] * 3, [1] * 3])
    tie = first.with_profiles(profiled([1.0] * 3, None, None, None))  # one that is known, one that is new
    np.testing.assert_array_equal(known(tie), [[NAN, NAN], [NAN, NAN], [6, 7], [NAN, NAN]])


def test_a_profile_far_from_all_others_is_drawn_in() -> None:
    profiles = np.array([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0], [300.0, 400.0], [NAN, NAN]])
    found = nodes.bounded(profiles)
    np.testing.assert_array_equal(found[[0, 1, 2, 3, 5]], profiles[[0, 1, 2, 3, 5]])
    np.testing.assert_allclose(found[4], [6.0, 8.0])  # ten median distances of 1
    near = profiles.copy()
    near[4] = [6.0, 8.0]
    assert nodes.bounded(near) is near
    for few in (profiles[[0, 4]], np.zeros((5, 0)), np.vstack([np.zeros((4, 2)), [[9.0, 9.0]]])):
        assert nodes.bounded(few) is few
    three = np.array([[0.0], [0.1], [9.0]])
    assert nodes.bounded(three)[2, 0] == pytest.approx(0.1 + 1.0)


def test_the_devices_that_may_try_again_soonest_do_not_rest() -> None:
    there = devices(*[Report()] * 4)
    roster = Roster.empty().with_devices(["0", "1", "2", "3"])
    knowledge = replace(roster.knowledge, failures=np.array([1, 1, 0, 1]), retry_round=np.array([9, 7, 0, 8]))
    roster = replace(roster, knowledge=knowledge)
    assert roster.resting(there, 5).tolist() == [True, True, False, True]
    assert roster.resting(there, 5, least=2).tolist() == [True, False, False, True]
    assert roster.resting(there[:2], 7).tolist() == [True, False]
    assert roster.resting(there[:2], 5).tolist() == [True, False]  # somebody has to train

"""What the server learns of devices: reports, measurements, and the same estimates as the simulator's."""

import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from fedcell.errors import InputError
from fedcell.flower.client import Report, parse_report
from fedcell.flower.nodes import Roster
from fedcell.flower.radio import CellRadio, Device, Grant, SimulatedRadio
from fedcell.protocol import Knowledge
from fedcell.protocol.estimates import Estimates
from fedcell.schedule.plan import Links, Plan, Timing
from fedcell.schedule.view import RoundView
from fedcell.world import Cell, DayNight, Devices, World

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

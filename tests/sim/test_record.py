"""The columns of a round's record: in which order, of which kinds, and what a record has of them."""

import json
import pickle

import numpy as np

import fedcell as fc
from fedcell.runs.records import encode
from fedcell.sim.record import ROUND_COLUMNS, columns

PLAN = fc.Plan(np.array([1, 4]), np.array([0.25, 0.75]), 6.5)
RECORD = fc.RoundRecord(3, 12.0, 6.0, PLAN, np.array([4]), 0.5, 1.25, 2.0, np.array([0.5, 1.5]), 0.5, 8.0, 1000.0, 3.0)


def test_the_columns_of_0_2_come_in_their_order() -> None:
    old = ["round", "clock_s", "round_s", "planned_s", "devices", "delivered", "accuracy", "loss", "joules"]
    old += ["plan_devices", "plan_shares", "plan_delivered", "plan_joules", "plan_starts_s"]
    names = [one.name for one in columns()]
    assert [name for name in names if name in old] == old
    assert len(set(names)) == len(names)
    assert tuple(one.name for one in columns() if not one.per_device) == ROUND_COLUMNS
    assert all(one.text for one in columns())


def test_what_a_record_has_of_each() -> None:
    assert RECORD.numbers() == (3, 12.0, 6.0, 6.5, 2, 1, 0.5, 1.25, 2.0, 0.5, 8.0, 1000.0, 3.0)
    assert {type(value) for value in RECORD.numbers()} == {int, float}
    found = RECORD.to_dict()
    assert found | RECORD.to_dict(plan=False) == found
    lists = {"plan_devices": [1, 4], "plan_shares": [0.25, 0.75], "plan_delivered": [4], "plan_joules": [0.5, 1.5]}
    lists |= {"plan_starts_s": [0.0, 0.0], "plan_epochs": None, "plan_bits": None}
    assert {name: found[name] for name in found if name not in ROUND_COLUMNS} == lists
    assert json.loads(json.dumps(found)) == found


def test_what_is_not_known_is_nan_for_each_device() -> None:
    unknown = fc.RoundRecord(1, 1.0, 1.0, PLAN, PLAN.devices, 0.5, 1.0)
    assert np.isnan([unknown.joules, unknown.epochs, unknown.bits, unknown.sent_bytes]).all()
    assert np.isnan(unknown.plan_joules).tolist() == [True, True]


def test_records_travel_between_processes() -> None:
    assert encode(pickle.loads(pickle.dumps(RECORD))) == encode(RECORD)

import copy
import itertools
import json
import pickle
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.dashboard.limits import known_race
from fedcell.errors import InputError
from fedcell.runs.race import default_race, race_policies
from fedcell.sim.spec import CellSpec, Spec, load_spec, parse_spec
from fedcell.sim.spec_key import run_key


def test_the_defaults_are_the_papers() -> None:
    spec = Spec()
    assert (spec.devices.count, spec.budget_s, spec.task.partition) == (20, 450.0, "labels:2")


def test_every_default_is_the_documented_one() -> None:
    assert {name: value for name, value in fc.Spec().model_dump().items() if not isinstance(value, dict)} == {
        "policy": "greedy", "seed": 0, "budget_s": 450.0, "budget_j": None, "rounds": None, "target_accuracy": None,
        "knowledge": "perfect", "slack": None, "explore": True, "profiles": "gradients", "epsilon": None, "version": 2,
    }  # fmt: skip
    dump = fc.Spec().model_dump()
    assert {name: dump["cell"][name] for name in CELL} == CELL
    assert {name: dump["devices"][name] for name in DEVICES} == DEVICES
    assert {name: dump["task"][name] for name in TASK} == TASK


CELL = {
    "radius_m": 1400.0, "bandwidth_hz": 3e6, "path_loss_1km_db": 128.1, "path_loss_exponent": 3.76,
    "min_distance_m": 1.0, "shadowing_db": 0.0, "shadowing_distance_m": 50.0, "fading": "none", "rician_k": 4.0,
    "model_bits": None, "csi_error_db": 0.0, "law": "density", "downlink": "free", "downlink_hz": None,
    "channel": "paper", "rate": "shannon",
}  # fmt: skip
DEVICES = {
    "count": 20, "seconds_per_sample": 0.002, "samples_per_second": 4000.0, "power_dbm": None, "kappa": 1e-28,
    "cpu_hz": 1e9, "cycles_per_sample": None, "compute_w": None, "battery_j": None, "mobility": "redrawn",
    "failure": 0.0, "availability": "always",
}  # fmt: skip
TASK = {
    "data": "mnist", "layout": "CHW", "scaling": "standard", "partition": "labels:2", "sizes": "equal",
    "engine": "mlp", "model": "mlp", "device": "cpu", "precision": "float32", "hidden": [64], "learning_rate": 0.01,
    "schedule": "constant", "momentum": 0.0, "weight_decay": 0.0, "batch_size": 10, "epochs": 1, "aggregator": "mean",
    "compression": "none",
}  # fmt: skip


def test_a_spec_has_the_defaults_of_cell_and_devices() -> None:
    world, devices = Spec().world([3000] * 20, 50_890), fc.Devices()
    for field in fields(fc.Cell):
        assert getattr(world.cell, field.name) == getattr(fc.Cell(), field.name), field.name
    for field in fields(fc.Devices):
        assert np.array_equal(getattr(world.devices, field.name), getattr(devices, field.name)), field.name


def test_a_cell_is_a_section_of_a_spec_and_devices_are_another() -> None:
    assert fc.CellSpec is fc.Cell
    assert fc.DevicesSpec is fc.Devices
    named: Any = {"channel": "uma:carrier_hz=2e9", "rate": "mcs64"}
    cell = fc.Cell(radius_m=np.float64(500), **named)
    assert cell == fc.Cell(radius_m=500, channel=fc.UMa(carrier_hz=2e9), rate=fc.Mcs64())
    spec = Spec(cell=cell, devices=fc.Devices(seconds_per_sample=[1e-3, 2e-3]))
    assert spec.cell.document()["channel"] == "uma:carrier_hz=2000000000"
    assert spec == parse_spec(spec.model_dump(), "x") == parse_spec(tomllib.loads(spec.to_toml()), "x")
    assert len({cell, fc.Cell(radius_m=500.0, **named), fc.Cell()}) == 2
    assert fc.Cell(model_bits=1_628_480) != fc.Cell()  # whose task may have another model
    assert Spec(cell=fc.Cell(model_bits=1_628_480)).key() != Spec().key()
    assert fc.Devices(count=3, kappa=[2e-28] * 3) == fc.Devices(count=3, kappa=2e-28)
    with pytest.raises(InputError, match=r"x: devices.samples is given, but those of a spec are the task's"):
        parse_spec({"devices": {"samples": 500}}, "x")
    with pytest.raises(InputError, match=r"Spec: devices.samples is given"):
        Spec(devices=fc.Devices(samples=[5, 5]))


def test_a_world_takes_from_its_devices_what_is_not_given() -> None:
    devices = fc.Devices(count=2, mobility="static", availability="daynight:there=0.5", power_dbm=20.0)
    world = fc.World(fc.Cell(bandwidth_hz=1e6), devices)
    assert (world.mobility, world.availability) == (fc.Static(), fc.DayNight(there=0.5))
    np.testing.assert_allclose(world.devices.power_w_per_hz, 0.1 / 1e6)
    assert fc.World(devices=devices, mobility=fc.Redrawn()).mobility == fc.Redrawn()


def test_python_files_options_and_the_page_mean_the_same_cell(tmp_path: Path) -> None:
    race = default_race()
    assert race.cell == Spec().cell == CellSpec(radius_m=1400.0)
    assert fc.Cell().radius_m == 1400.0
    assert race.grid == {"policy": race_policies(), "seed": [0, 1, 2, 3, 4]}
    (tmp_path / "empty.toml").write_text("")
    assert load_spec(tmp_path / "empty.toml") == Spec()
    assert known_race({}, None, 5) == race


def test_keys_of_partitions_and_sizes_are_what_they_were() -> None:
    spec = parse_spec({"task": {"partition": "dirichlet:0.5", "sizes": "zipf:1"}, "cell": {"radius_m": 1400}}, "x")
    assert spec.key() == "3a54a769aade5f1a70c8c82e668c7ad49e69bd80fe2c156e14b906e56ed7442f"


def test_a_spec_written_is_the_spec_read(tmp_path: Path) -> None:
    spec = parse_spec(
        {
            "policy": "greedy:theta=0.1",
            "rounds": 7,
            "knowledge": "observed",
            "cell": {"fading": "rician", "model_bits": 1000},
            "devices": {"count": 3, "seconds_per_sample": [1e-3, 2e-3, 3e-3], "mobility": "waypoint:speed_mps=0.5..2"},
            "task": {"data": 'odd "name"\\path.npz', "sizes": [10, 20, 30], "hidden": [32, 16]},
            "grid": {"policy": ["all", "random:k=2"], "cell.radius_m": [100.0, 200.0]},
        },
        "test",
    )
    path = tmp_path / "spec.toml"
    path.write_text(spec.to_toml())
    assert fc.load_spec(path) == spec


def test_rounds_replace_the_budget_unless_both_are_given() -> None:
    assert parse_spec({"rounds": 3}, "x").budget_s == float("inf")
    assert parse_spec({"rounds": 3, "budget_s": 9.0}, "x").budget_s == 9.0


@pytest.mark.parametrize("seeds", [[3, 1], [3.0, 1], [2]])
def test_the_runs_of_a_grid_are_those_made_one_by_one(seeds: list[Any]) -> None:
    others: dict[str, list[Any]] = {"policy": ["all", "greedy:theta=0"], "task.hidden": [[4], [5, 6]]}
    for given in itertools.permutations({**others, "seed": seeds}.items()):
        spec = Spec(rounds=3, grid=dict(given))
        made = [dict(zip(spec.grid, values, strict=True)) for values in itertools.product(*spec.grid.values())]
        assert spec.runs() == [spec.changed(changes) for changes in made]
        assert [run.key() for run in spec.runs()] == [spec.changed(changes).key() for changes in made]


def test_a_grid_makes_every_combination() -> None:
    runs = parse_spec({"grid": {"policy": ["all", "greedy"], "cell.radius_m": [10, 20], "seed": [3]}}, "x").runs()
    assert [(run.policy, run.cell.radius_m, run.seed) for run in runs] == [
        ("all", 10.0, 3),
        ("all", 20.0, 3),
        ("greedy", 10.0, 3),
        ("greedy", 20.0, 3),
    ]
    assert all(not run.grid for run in runs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("polcy = 'greedy'", "unknown field 'polcy'; did you mean 'policy'"),
        ("[cell]\nradius = 3", "unknown field 'cell.radius'; did you mean 'radius_m'"),
        ("[tasks]\n", "unknown field 'tasks'; did you mean 'task'"),
        ("policy = 'gredy'", "policy: unknown policy 'gredy'; did you mean 'greedy'"),
        ("policy = 'random'", "policy: policy 'random' needs k"),
        ("seed = -1", "seed is -1; input should be greater than or equal to 0"),
        ("seed = 'one'", "seed is 'one'; input should be a valid integer"),
        ("budget_s = -5", "budget_s is -5; input should be greater than 0"),
        ("budget_s = nan", "budget_s is nan"),
        ("budget_s = inf", "budget_s is inf and rounds is not given"),
        ("[cell]\nradius_m = -1", "cell.radius_m is -1; give a finite number above 0"),
        ("[cell]\nradius_m = nan", "cell.radius_m is nan; give a finite number above 0"),
        ("[cell]\nfading = 'ricean'", "cell.fading is 'ricean'; did you mean 'rician'"),
        ("[devices]\ncount = 0", "devices.count is 0"),
        ("[devices]\nmobility = 'statc'", "devices.mobility: .*static"),
        ("[devices]\nseconds_per_sample = [1, 2]", "count is 20 but the length of seconds_per_sample is 2|is 2 but"),
        ("[task]\npartition = 'label:2'", "task.partition: .*labels"),
        ("[task]\nlearning_rate = 0", "task.learning_rate is 0"),
        ("[grid]\npolcy = ['all']", "there is no field 'polcy'; did you mean 'policy'"),
        ("[grid]\nseed = []", "grid has 0 runs"),
        ("[grid]\nseed = [0, -1]", "seed is -1"),
        ("[grid]\ncell = [1]", "there is no field 'cell'"),
        ("this is no toml", "is not valid TOML"),
    ],
)
def test_a_bad_spec_is_named(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(fc.InputError, match=words):
        fc.load_spec(path)


def test_files_that_are_no_spec_are_named(tmp_path: Path) -> None:
    with pytest.raises(fc.InputError, match=r"cannot read .*missing.toml: No such file"):
        fc.load_spec(tmp_path / "missing.toml")
    with pytest.raises(fc.InputError, match="cannot read"):
        fc.load_spec(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(fc.InputError, match="is not UTF-8 text"):
        fc.load_spec(tmp_path / "bytes.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(fc.InputError, match="is larger than 1024 KiB"):
        fc.load_spec(tmp_path / "large.toml")


def test_a_mistake_in_python_is_one_sentence_too() -> None:
    mistakes: list[tuple[type[Any], dict[str, Any], str]] = [
        (Spec, {"wrong": 1}, "Spec: unknown field 'wrong'; did you mean"),
        (Spec, {"cell": {"radius": 1}}, "Spec: unknown field 'cell.radius'; did you mean 'radius_m'?"),
        (fc.CellSpec, {"radius": 1}, "unknown field 'radius'; did you mean 'radius_m'?"),
        (fc.DevicesSpec, {"failure": 2}, "failure is 2; give a number below 1"),
        (fc.TaskSpec, {"epochs": 1.5}, "TaskSpec: epochs is 1.5; give a whole number, or a fraction below 1"),
        (Spec, {"grid": {"seed": [0, 1, 0]}}, "Spec: grid has the seed 0 twice; give it once"),
        (Spec, {"grid": {"cell.radius_m": [500, 500.0]}}, "Spec: grid has the cell.radius_m 500.0 twice; give it once"),
        (Spec, {"grid": {"task.hidden": [[4], [4]]}}, "Spec: grid has the task.hidden [4] twice; give it once"),
    ]
    for kind, given, words in mistakes:
        with pytest.raises(fc.InputError) as caught:
            kind(**given)
        assert str(caught.value).startswith(words)
        assert "\n" not in str(caught.value)
    with pytest.raises(fc.InputError, match=r"race\.toml: grid has the seed 0 twice"):
        parse_spec({"grid": {"seed": [0, 0]}}, "race.toml")


def test_equal_runs_have_one_key_however_they_are_written() -> None:
    greedy: Any = fc.Greedy()
    assert Spec(policy=greedy).key() == Spec(policy="greedy").key() == Spec(policy="Greedy").key()
    assert Spec(policy="random:8").key() == Spec(policy="random:k=8").key()
    assert Spec(policy="random:8") == Spec(policy="random:k=8")
    mine: Any = fc.Random(k=8, max_devices=5)
    assert Spec(policy=mine) == Spec(policy="random:k=8,max_devices=5")
    assert parse_spec({"task": {"schedule": "Constant"}}, "x").key() == Spec().key()


def test_a_key_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(spec: Spec, code: str) -> str:
        asked.append(spec)
        return run_key(spec, code)

    monkeypatch.setattr("fedcell.sim.spec.run_key", counted)
    spec = Spec(policy="random:8")
    assert len({spec.key(), spec.key(), hash(spec), hash(spec)}) == 2
    assert len(asked) == 1
    copies = [spec.model_copy(update={"seed": 3}), pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)]
    assert copies[0].key() == spec.changed(seed=3).key() != spec.key()
    assert [one.key() for one in copies[1:]] == [spec.key()] * 2
    assert spec.changed() == spec  # the one has its key, the other not yet
    assert "_key" not in spec.model_dump()
    assert "_key" not in repr(spec)


def test_a_key_follows_the_files_that_it_counts(tmp_path: Path) -> None:
    (tmp_path / "who.csv").write_text("device,from_s,until_s\n0,0,50\n")
    spec = Spec(devices=fc.DevicesSpec(count=2, availability=f"trace:{tmp_path / 'who.csv'}"))
    key = spec.key()
    assert spec.key() == key
    (tmp_path / "who.csv").write_text("device,from_s,until_s\n0,0,60\n")
    assert spec.key() != key


# --- copies, and what cannot be changed ----------------------------------------------------------------------------


GRID: dict[str, list[Any]] = {"policy": ["all", "greedy"], "seed": [0, 1], "devices.compute_w": [[1.0] * 20, 2.0]}


def test_a_changed_spec_keeps_its_grid_but_for_what_was_changed() -> None:
    spec = Spec(grid=GRID)
    assert spec.changed({"cell.radius_m": 500.0}).grid == GRID
    assert spec.changed({"seed": 7}).grid == {name: GRID[name] for name in ("policy", "devices.compute_w")}
    assert {run.seed for run in spec.changed(seed=7).runs()} == {7}
    assert spec.changed({"seed": 7}, {"seed": [1, 2]}).grid == {"seed": [1, 2]}
    assert spec.changed({}, {}).grid == {}
    assert all(run.grid == {} for run in spec.runs())
    assert spec.changed(rounds=3).rounds == 3
    race = fc.Spec(rounds=1, grid={"policy": ["diverse", "random:k=4"], "seed": [0, 1, 2]})
    assert race.changed({"cell.radius_m": 500.0}).grid == race.grid
    with pytest.raises(InputError, match="there is no field 'rouns'; did you mean 'rounds'"):
        spec.changed(rouns=3)


def test_a_spec_cannot_be_changed_by_what_is_in_it() -> None:
    spec = Spec(grid=GRID, task=fc.TaskSpec(hidden=[4]), devices=fc.DevicesSpec(compute_w=[2.0] * 20))
    for change in (
        lambda: spec.task.hidden.append(5),
        spec.task.hidden.sort,
        lambda: spec.grid["seed"].append(2),
        spec.grid["devices.compute_w"][0].clear,
        lambda: spec.grid.update(seed=[3]),
        lambda: spec.grid.pop("seed"),
        lambda: spec.model_copy(update={"grid": {"seed": [1]}}).grid["seed"].append(2),
        lambda: Spec().task.hidden.append(5),
        lambda: spec.changed(seed=1).grid["policy"].append("all"),
    ):
        with pytest.raises(InputError, match="a spec cannot be changed; "):
            change()
    with pytest.raises(InputError, match="cannot be changed"):
        spec.grid["seed"] = [3]
    assert spec.task.hidden == [4]
    assert spec.grid == GRID
    copies = [pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec), Spec(**spec.model_dump())]
    copies += [parse_spec(tomllib.loads(spec.to_toml()), "x"), Spec.model_validate_json(spec.model_dump_json())]
    for one in copies:
        assert one == spec
        assert hash(one) == hash(spec)
    assert len({spec, *copies, spec.changed(seed=1)}) == 2
    dumped = spec.model_dump()
    assert type(dumped["grid"]) is dict
    assert {type(dumped["grid"]["seed"]), type(dumped["task"]["hidden"])} == {list}
    assert json.loads(json.dumps(dumped))["grid"] == GRID


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Spec(rounds=True), "Spec: rounds is True; give a number, not a truth value"),
        (
            lambda: parse_spec({"cell": {"radius_m": "500"}}, "Spec"),
            "Spec: cell.radius_m is '500'; give one number",
        ),
        (
            lambda: parse_spec({"task": {"hidden": [True]}}, "Spec"),
            "Spec: task.hidden is [True]; give a number, not a truth value",
        ),
        (lambda: Spec(grid={"seed": ["3"]}), "Spec: grid: seed is '3'; give a number, without quotes"),
        (lambda: Spec(grid={"seed": [True]}), "Spec: grid: seed is True; give a number, not a truth value"),
        (
            lambda: parse_spec({"budget_s": "inf", "rounds": 3}, "Spec"),
            "Spec: budget_s is 'inf'; give a number, without quotes",
        ),
        (lambda: list(fc.simulate("greedy")), "simulate takes a Spec, not 'greedy'; write Spec(policy='greedy'), or"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_number_or_no_spec_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError) as told:
        make()
    assert str(told.value).startswith(said)

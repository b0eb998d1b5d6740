"""A results file whose curves are known, without training any: a race, a sweep and a tournament to look at."""

from dataclasses import replace
from itertools import product

from fedcell.runs.contest import Scenario, Tournament, save_tournament
from fedcell.runs.race import race_spec, race_to_store
from fedcell.runs.store import Store
from fedcell.sim.loop import simulate
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec, TaskSpec
from fedcell.world import Devices

ROUND_S = {"greedy": 10.0, "diverse": 4.0, "random:k=2": 20.0}
SEEDS = 7
"""The fewest with which three policies can be told apart."""
END_S = 160.0
TARGET = 0.5
RACE = "0123456789abcdef"
RUNS = 12 + 2 * SEEDS * len(ROUND_S)
SMALL_M = 300.0
"""The radius of the tournament's second scenario, where all rounds take as long."""
RADII_M, BANDS_HZ = (600.0, 1200.0, 900.0), (1e6, 5e6)


def fill(store: Store) -> None:
    """A race whose curves are known: 5 points a round, a round so many seconds by policy, a little more by seed."""
    base = Spec(budget_s=END_S, devices=Devices(count=4), task=TaskSpec(hidden=[4]))
    (record,) = simulate(base.changed({"rounds": 1, "policy": "all"}, {}))
    spec = race_spec(base.changed({}, {"policy": list(ROUND_S), "seed": list(range(SEEDS))}))
    for run in spec.runs():
        store.put(run, _rounds(record, ROUND_S[run.policy] * (1 + 0.01 * run.seed)))
    for place, (radius_m, bandwidth_hz) in enumerate(product(RADII_M, BANDS_HZ)):  # a sweep: 10 % more each
        for seed in range(2):
            swept = base.changed(
                {"cell.radius_m": radius_m, "cell.bandwidth_hz": bandwidth_hz, "policy": "random:k=3", "seed": seed}, {}
            )
            store.put(swept, [replace(record, accuracy=0.1 * (1 + place) + 0.02 * seed)])
    store.put_race(race_to_store(RACE, spec, TARGET, "done", 1.0))
    _fill_tournament(store, base, record)


def _fill_tournament(store: Store, base: Spec, record: RoundRecord) -> None:
    """The race's runs, and a small cell in which all are equally quick."""
    small = base.changed({"cell.radius_m": SMALL_M})
    tournament = Tournament(
        [Scenario("race", "The race.", TARGET, base), Scenario("small", "", TARGET, small)],
        list(ROUND_S),
        list(range(SEEDS)),
    )
    runs = tournament.runs()
    for (name, _, seed), run in runs.items():
        if name == "small":
            store.put(run, _rounds(record, 5.0 * (1 + 0.01 * seed)))
    save_tournament(store, tournament, {entry: run.key() for entry, run in runs.items()})


def _rounds(record: RoundRecord, round_s: float) -> list[RoundRecord]:
    """5 points a round."""
    return [
        replace(record, round=n, clock_s=n * round_s, round_s=round_s, accuracy=min(0.9, 0.05 * n))
        for n in range(1, int(END_S / round_s) + 1)
    ]

"""The stored runs as the page lists them: sorted, filtered and averaged over all, however many there are."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.dashboard.runs import Chosen, field_means, listed
from fedcell.dashboard.schemas import FieldMeans, RunList
from fedcell.errors import InputError
from fedcell.runs.store import Store
from fedcell.runs.stored import StoredRun, flat
from fedcell.schedule.plan import Plan

PAGE = 500
POLICIES = ("diverse", "greedy", "random:k=8")
RADII = (200.0, 1000.0, 900.0)
SEEDS = range(70)
ALL = Chosen(None, None, "")
Found = list[tuple[StoredRun, str]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    """630 runs, of which the best and those of `diverse` were stored first; one has no round."""
    path, rng = tmp_path_factory.mktemp("many") / "results.db", np.random.default_rng(1)
    with Store(path) as store:
        for policy in POLICIES:
            for seed in SEEDS:
                for radius_m in RADII:
                    accuracy = 0.99 if (policy, seed, radius_m) == ("diverse", 0, 200.0) else rng.uniform(0.1, 0.9)
                    plan = Plan(np.array([0]), np.array([1.0]), 2.0, np.array([2.0]))
                    record = fc.RoundRecord(1, 2.0, 2.0, plan, np.array([0]), accuracy, 1.0)
                    spec = fc.Spec(policy=policy, seed=seed, rounds=1, cell=fc.Cell(radius_m=radius_m))
                    store.put(spec, [record], 0.1)
        store.put(fc.Spec(policy="all", rounds=1, cell=fc.Cell(radius_m=900.0)), [], 0.1)
        yield [(run, "results.db") for run in store.runs()]


def answer(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


def test_what_is_sorted_are_all_runs(found: Found) -> None:
    first = answer(listed(found, ALL, "-best", PAGE, 0))
    RunList.model_validate(first)
    assert (first["total"], len(first["runs"])) == (631, PAGE)
    assert first["runs"][0]["best_accuracy"] == 0.99
    rest = answer(listed(found, ALL, "-best", PAGE, PAGE))["runs"]
    accuracies = [run["best_accuracy"] for run in first["runs"] + rest]
    assert accuracies[:-1] == sorted((run.best_accuracy for run, _ in found if run.rounds), reverse=True)
    assert accuracies[-1] is None  # the run without a round
    assert len({run["key"] for run in first["runs"] + rest}) == 631


@pytest.mark.parametrize("sort", ["policy", "seed", "rounds", "last", "source", "file", "finished", "differs"])
def test_every_column_sorts_both_ways(found: Found, sort: str) -> None:
    up, down = (answer(listed(found, ALL, sign + sort, 1000, 0))["runs"] for sign in ("", "-"))
    field = {"last": "last_accuracy", "file": "store", "finished": "finished_unix_s"}.get(sort, sort)

    def value(run: dict[str, Any]) -> Any:
        if sort == "differs":  # numbers by size, not by their text: 200 < 900 < 1000
            return run["differs"]["cell.radius_m"]
        return -1.0 if run[field] is None else run[field]

    assert [value(run) for run in up] == sorted(map(value, up))
    assert [value(run) for run in down] == sorted(map(value, up), reverse=True)


def test_all_policies_can_be_chosen_whatever_is_shown(found: Found) -> None:
    some = answer(listed(found, Chosen("greedy", None, ""), "-finished", 10, 0))
    assert (some["total"], some["policies"]) == (210, ["all", *POLICIES])
    assert {run["policy"] for run in some["runs"]} == {"greedy"}


def test_runs_of_an_address_are_found_by_their_keys(found: Found) -> None:
    keys = [found[i][0].key for i in (0, 315, 630)]
    given = answer(
        listed(found, Chosen(None, None, ",".join([keys[0], keys[1][:8], keys[2], "f" * 64])), "seed", 10, 0)
    )
    assert {run["key"] for run in given["runs"]} == set(keys)


@pytest.mark.parametrize(
    ("keys", "fault"),
    [("abc", "'abc' is not a run's key; give at least eight"), (",".join(["f" * 8] * 65), "keys has 65 runs; give 64")],
)
def test_wrong_keys_are_one_sentence(found: Found, keys: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        listed(found, Chosen(None, None, keys), "seed", 10, 0)


def test_means_are_over_all_runs(found: Found) -> None:
    means = answer(field_means(found, ALL, "cell.radius_m", "policy", "best_accuracy"))
    FieldMeans.model_validate(means)
    assert (means["runs"], means["x"], means["y"]) == (630, sorted(RADII), list(POLICIES))
    for i, policy in enumerate(means["y"]):
        for j, radius_m in enumerate(means["x"]):
            of = [
                run.best_accuracy
                for run, _ in found
                if run.policy == policy and flat(run.document)["cell.radius_m"] == radius_m
            ]
            assert means["counts"][i][j] == len(of) == len(SEEDS)
            assert means["means"][i][j] == pytest.approx(np.mean(of))
    assert means["styles"][0]["colour"].startswith("#")
    assert answer(field_means(found, ALL, "", "policy", "best_accuracy"))["across"] == "cell.radius_m"


def test_fields_in_which_nothing_differs_are_refused(found: Found) -> None:
    with pytest.raises(
        InputError, match=r"the runs do not differ in 'task\.epochs'; choose from cell\.radius_m, policy"
    ):
        field_means(found, ALL, "task.epochs", "policy", "best_accuracy")
    one = Chosen(None, None, found[0][0].key)
    assert answer(field_means(found, one, "", "policy", "best_accuracy"))["fields"] == []

"""A policy cannot change what it looks at, and Numba compiles nothing for arrays that are read-only."""

import inspect
import sys
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, ClassVar

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher
from numba.core.types import Array

import fedcell as fc
from fedcell.sim.loop import Simulation
from fedcell.sim.spec import Spec
from harness import TINY


def arrays_of(view: fc.RoundView) -> dict[str, Any]:
    found = {field.name: getattr(view, field.name) for field in fields(view)}
    found |= {"snr": getattr(view.law, "snr", None), "seconds": getattr(view.downlink, "seconds", None)}
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


def test_no_array_of_a_view_can_be_changed_and_nobody_elses_is_touched() -> None:
    upload_s, compute_s, snr = np.array([3.0, 1.0, 2.0]), np.ones(3), np.array([1.0, 2.0, 3.0])
    labels = np.ones((3, 2))
    view = fc.RoundView(
        upload_s,
        compute_s,
        law=fc.Power(snr),
        downlink=fc.Multicast(np.ones(3)),
        label_counts=labels,
        round_losses=np.ones(4),
        ids=[0, 1, 2],
    )
    every = [view, replace(view, joules=np.ones(3)), view.only(np.array([0, 2]))]
    every.append(view.with_answers(np.array([1, 2]), 3.0, losses=np.ones(2)))
    for one in every:
        found = arrays_of(one)
        assert {"upload_s", "compute_s", "label_counts", "round_losses", "ids", "snr", "seconds"} <= set(found)
        for name, array in found.items():
            assert not array.flags.writeable, name
            with pytest.raises(ValueError, match="read-only"):
                array.sort(axis=0)
    for array in (upload_s, compute_s, snr, labels):
        assert array.flags.writeable
    assert view.upload_s.tolist() == [3.0, 1.0, 2.0]


@dataclass(frozen=True)
class Sorts(fc.Policy):
    """Sorts in place, as the review's did."""

    column: str = "upload_s"
    uses_profiles: ClassVar[bool] = True

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> list[int]:
        getattr(view, self.column).sort(axis=0)
        return [0]


@pytest.mark.parametrize("column", ["upload_s", "ids", "label_counts", "profiles", "samples"])
def test_a_policy_that_sorts_in_place_is_told_to_copy(column: str) -> None:
    said = rf"^Sorts changes an array of the view \({__file__}, line \d+\), which is read-only; copy it first, such as"
    spec = Spec(**TINY, policy=f"{__name__}:Sorts:column={column}")
    with pytest.raises(fc.InputError, match=said):
        next(fc.simulate(spec, threads=1))
    run = Simulation.load(spec, 1)
    conditions = run.conditions(state := run.start())
    assert conditions is not None
    with pytest.raises(fc.InputError, match=said):
        Sorts(column=column).decide(run.round_inputs(state, conditions).view, np.random.default_rng(0))


def test_whatever_a_policy_raises_else_is_its_own() -> None:
    @dataclass(frozen=True)
    class Wrong(fc.Policy):
        def choose(self, view: fc.RoundView, rng: np.random.Generator) -> list[int]:
            raise ValueError("my own")

    with pytest.raises(ValueError, match=r"^my own$"):
        Wrong().decide(fc.RoundView([1.0], [1.0]), np.random.default_rng(0))


def test_nothing_is_compiled_for_read_only_arrays() -> None:
    """It would take 7 to 10 s for every law, in every process that has it not cached."""
    rng, M = np.random.default_rng(0), 12
    columns: dict[str, Any] = {
        "ids": np.arange(M),
        "last_round": np.full(M, -1),
        "mean_upload_s": rng.uniform(0.1, 1.0, M),
        "samples": np.full(M, 100),
        "label_counts": rng.integers(1, 50, (M, 10)),
        "profiles": rng.random((M, 10)),
        "recent": rng.random(M),
        "joules": rng.random(M),
        "losses": rng.random(M),
        "rms_losses": rng.random(M),
        "norms": rng.random(M),
        "heard_round": np.zeros(M, int),
        "updates": rng.random((M, 16)),
        "turns": np.ones(M, int),
        "took_s": rng.random(M),
        "planned_s": rng.random(M),
        "presence": np.ones(M),
        "round_losses": rng.random(3),
        "must_include": np.arange(M) == 3,
    }
    laws = [fc.Density(), fc.Blocks(15), fc.Power(rng.uniform(1.0, 9.0, M)), fc.Dedicated(), fc.Ingress(pipe_s=0.5)]
    settings: dict[str, Any] = {"k": 3, "seconds": 9.0}
    for kind in fc.POLICIES.values():
        wanted = {field.name: settings[field.name] for field in fields(kind) if field.name in settings}
        for law in laws:
            for downlink in (None, fc.Multicast(np.full(M, 0.1))):
                view = fc.RoundView(
                    rng.uniform(0.1, 1.0, M), rng.random(M), round_index=3, law=law, downlink=downlink, **columns
                )
                kind(**wanted).decide(view, rng)
    modules = [module for name, module in sys.modules.items() if name.startswith("fedcell.schedule")]
    compiled = {value for module in modules for value in vars(module).values() if isinstance(value, CPUDispatcher)}
    assert len(compiled) > 20
    arrays = [(one, kind) for one in compiled for made in one.signatures for kind in made if isinstance(kind, Array)]
    assert len(arrays) > 100
    assert [str(one) for one, kind in arrays if not kind.mutable] == []


def test_only_the_two_times_are_told_by_their_place() -> None:
    kinds = {name: one.kind for name, one in inspect.signature(fc.RoundView).parameters.items()}
    places = [name for name, kind in kinds.items() if kind is not inspect.Parameter.KEYWORD_ONLY]
    assert places == ["upload_s", "compute_s"]
    view = fc.RoundView([1.0], [2.0])
    assert (view.round_index, view.profile_noise, view.clock_s, view.left_s, view.left_j) == (0, 0.0, 0.0, inf, inf)
    assert (view.epochs, view.tensors, view.bits, view.overhead_bits) == (1.0, 1, 32.0, 0.0)

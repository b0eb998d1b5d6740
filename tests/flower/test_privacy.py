"""Differential privacy inside Scheduled: the number of devices that its noise is for, and what it has spent."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    Strategy,
)
from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, PrivacySpent, SamplingMethod

from fedcell.errors import InputError
from fedcell.flower import Report, Scheduled, report_device
from fedcell.flower.privacy import sample_size
from fedcell.flower.wrapped import changed_numbers, name_of, own_numbers, restore_numbers
from flower.local import LocalGrid, Nodes, node


class Ledger:
    """A privacy accountant that counts releases; Flower's own needs a package that few have."""

    def __init__(self, most: float = 100.0) -> None:
        relation, method = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
        self.config = PrivacyConfig(1e-5, 10, relation, method, most)
        self.num_releases = 0

    def compose(self, event: Any, count: int = 1) -> None:
        self.num_releases += count

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        return PrivacySpent(float(self.num_releases), delta or 1e-5, self.num_releases, "ledger")

    def would_exceed(self, event: Any, max_epsilon: float | None = None, count: int = 1) -> bool:
        return self.num_releases + count > (max_epsilon or self.config.max_epsilon or 0.0)

    def state_dict(self) -> dict[str, object]:
        return {"releases": self.num_releases, "most": self.config.max_epsilon}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["most"] != self.config.max_epsilon:
            raise ValueError("another budget")
        self.num_releases = state["releases"]


def fixed(size: int = 3, accountant: Any = None, noise: float = 0.001) -> Strategy:
    inner = FedAvg(fraction_evaluate=0.0)
    return DifferentialPrivacyServerSideFixedClipping(inner, noise, 5.0, size, accountant=accountant)


def adaptive(size: int = 3) -> Strategy:
    return DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(fraction_evaluate=0.0), 0.0, size)


def client(fails_in: tuple[int, ...] = ()) -> ClientApp:
    app = ClientApp()
    report_device(app, Report(upload_s=1.0, compute_s=0.1))

    @app.train()
    def train(asked: Message, _: Context) -> Message:
        if asked.content.config_records["config"]["server-round"] in fails_in:
            raise ZeroDivisionError
        weights = asked.content.array_records["arrays"]["w"].numpy() + np.float32(1.0)
        records: dict[str, Any] = {
            "arrays": ArrayRecord({"w": Array(weights)}),
            "metrics": MetricRecord({"num-examples": 1}),
        }
        return Message(RecordDict(records), reply_to=asked)

    return app


def clients(count: int = 3, fails_in: tuple[int, ...] = ()) -> Nodes:
    apps = [client(fails_in if n == 0 else ()) for n in range(count)]
    return {n: node(app, n) for n, app in enumerate(apps)}


def run(strategy: Strategy, state: Path | None = None, rounds: int = 3, **given: Any) -> tuple[Scheduled, Any]:
    nodes = given.pop("on", None) or clients()
    settings: dict[str, Any] = {"nodes": len(nodes), "wait_s": 0.5, "grace_s": 1000.0, **given}
    scheduled = Scheduled(strategy, settings.pop("policy", "random:k=3"), state=state, **settings)
    model = ArrayRecord({"w": Array(np.zeros(2, dtype=np.float32))})
    return scheduled, scheduled.start(LocalGrid(nodes), model, num_rounds=rounds)


@pytest.mark.parametrize(
    "policy", ["random:k=3", "round_robin:k=3", "proportional_fair:k=3", "all", "all:max_devices=3"]
)
def test_policies_of_the_right_number_are_taken(policy: str) -> None:
    Scheduled(fixed(3), policy, nodes=5 if "max" in policy else 3)


@pytest.mark.parametrize(
    "policy",
    ["greedy", "optimal", "deadline:seconds=9", "random:k=2", "all", "all:max_devices=2", "greedy:max_devices=3"],
)
def test_policies_of_another_number_than_the_noise_is_for_are_refused(policy: str) -> None:
    with pytest.raises(InputError, match="is for exactly 3 devices in each round") as e:
        Scheduled(fixed(3), policy, nodes=5)
    assert "\n" not in str(e.value)
    Scheduled(FedAvg(), policy, nodes=5)  # without noise, any will do


def test_the_size_is_found_at_any_depth() -> None:
    assert sample_size(FedAvg()) is None
    assert sample_size(adaptive(7)) == 7


def test_a_round_of_another_size_is_refused_and_a_missing_node_is_waited_for() -> None:
    class Fewer(FedAvg):
        def configure_train(self, *args: Any, **kwargs: Any) -> Any:
            return list(super().configure_train(*args, **kwargs))[:2]

    strategy = DifferentialPrivacyServerSideFixedClipping(Fewer(fraction_evaluate=0.0), 0.1, 1.0, 3)
    with pytest.raises(InputError, match="a round has 2 devices, but the noise of DifferentialPrivacyServerSideFixed"):
        run(strategy)
    with pytest.raises(InputError, match="needs 3"):
        run(fixed(3), on=clients(2), nodes=2)


@pytest.mark.parametrize("accountant", [None, Ledger])
def test_a_round_that_delivers_fewer_models_is_not_averaged_and_does_not_count(
    accountant: Any, log: pytest.LogCaptureFixture
) -> None:
    ledger = accountant and accountant()
    scheduled, found = run(fixed(3, ledger), on=clients(fails_in=(2,)))
    assert [len(done.delivered) for done in scheduled.rounds] == [3, 0, 3, 3]
    assert found.arrays["w"].numpy() == pytest.approx([3.0, 3.0], abs=0.1)  # of rounds 1, 3 and 4
    assert any("round 2 is not aggregated" in line for line in log.messages)
    if ledger:
        assert ledger.num_releases == 3


def test_what_was_spent_survives_and_ends_a_resumed_run_when_the_budget_is_used_up(tmp_path: Path) -> None:
    run(fixed(3, Ledger()), tmp_path, rounds=2)
    ledger = Ledger()
    run(fixed(3, ledger), tmp_path, rounds=3)
    assert ledger.num_releases == 3
    with pytest.raises(InputError, match="the privacy that the saved run spent cannot be restored: another budget"):
        run(fixed(3, Ledger(most=5.0)), tmp_path, rounds=4)
    with pytest.raises(InputError, match=r"has a record of the privacy that it spent, but .* has no accountant"):
        run(fixed(3), tmp_path, rounds=4)


def test_a_release_counts_even_if_the_server_dies_before_the_round_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Scheduled, "_evaluate", die)  # after the mean, before the state is saved
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                run(fixed(3, Ledger()), tmp_path, rounds=2)
    ledger = Ledger()
    run(fixed(3, ledger), tmp_path, rounds=2)
    assert ledger.num_releases == 4


def test_an_accountant_that_cannot_be_saved_is_refused_before_round_1(tmp_path: Path) -> None:
    class Silent(Ledger):
        def state_dict(self) -> dict[str, object]:
            return {"object": object()}

    with pytest.raises(InputError, match="the Silent of DifferentialPrivacyServerSideFixedClipping cannot be saved"):
        run(fixed(3, Silent()), tmp_path)
    run(fixed(3, Silent()))  # without a state there is nothing to forget


def test_a_saved_run_without_account_is_not_resumed_with_one(tmp_path: Path) -> None:
    run(fixed(3), tmp_path, rounds=1)
    with pytest.raises(InputError, match=r"has no record of the privacy that it spent, but .* has an accountant"):
        run(fixed(3, Ledger()), tmp_path)


def test_an_adaptive_clipping_norm_goes_on_where_it_was(tmp_path: Path) -> None:
    strategy = adaptive()
    run(strategy, rounds=4)
    for rounds in (2, 3, 4):
        resumed = adaptive()
        run(resumed, tmp_path, rounds=rounds)
    assert resumed.clipping_norm == strategy.clipping_norm != adaptive().clipping_norm  # type: ignore[attr-defined]
    saved = json.loads((tmp_path / "state.json").read_text())
    assert saved["numbers"] == {"0/clipping_norm": strategy.clipping_norm}  # type: ignore[attr-defined]
    assert saved["strategy"] == "DifferentialPrivacyServerSideAdaptiveClipping(FedAvg)"


def test_only_numbers_that_the_strategy_changed_are_saved_and_only_those_it_has_are_restored() -> None:
    strategy = FedAdam(eta=0.5)
    before = own_numbers(strategy)
    assert "0/eta" in before
    assert changed_numbers(strategy, before) == {}
    strategy.eta, strategy.weighted_by_key = 0.25, "other"
    strategy.new = 3  # type: ignore[attr-defined]
    assert changed_numbers(strategy, before) == {"0/eta": 0.25}
    other = FedAdam(eta=0.1)
    restore_numbers(other, {"0/eta": 0.25, "0/unknown": 1.0, "1/eta": 2.0, "0/weighted_by_key": 4.0})
    assert other.eta == 0.25
    assert other.weighted_by_key == "num-examples"
    assert not hasattr(other, "unknown")
    assert name_of(fixed()) == "DifferentialPrivacyServerSideFixedClipping(FedAvg)"


def test_private_strategies_with_something_that_is_not_saved_are_not_resumed(tmp_path: Path) -> None:
    strategy = fixed()
    strategy.rng = np.random.default_rng(0)  # type: ignore[attr-defined]
    run(strategy, tmp_path, rounds=1)
    with pytest.raises(InputError, match=r"cannot be resumed: .*Clipping.rng is a Generator, which is not saved"):
        run(strategy, tmp_path, rounds=2)
    plain = FedAvg(fraction_evaluate=0.0)
    plain.rng = np.random.default_rng(0)  # type: ignore[attr-defined]
    for rounds in (1, 2):
        run(plain, tmp_path / "plain", rounds=rounds)  # without privacy, at the app's own risk


def test_a_run_is_not_resumed_with_another_strategy_inside(tmp_path: Path) -> None:
    run(fixed(), tmp_path, rounds=1)
    other = DifferentialPrivacyServerSideFixedClipping(FedAdam(fraction_evaluate=0.0), 0.001, 5.0, 3)
    with pytest.raises(InputError, match=r"has a run whose strategy is .*\(FedAvg\), not .*\(FedAdam\)"):
        run(other, tmp_path)


def test_privacy_around_scheduled_is_refused_and_the_right_order_is_shown() -> None:
    inside = Scheduled(FedAvg(fraction_evaluate=0.0), "random:k=3", nodes=3)
    around = DifferentialPrivacyServerSideFixedClipping(inside, 0.1, 1.0, 3)
    model = ArrayRecord({"w": Array(np.zeros(2, dtype=np.float32))})
    with pytest.raises(InputError, match=r"write it outermost: Scheduled\(DifferentialPrivacy"):
        around.start(LocalGrid(clients()), model, num_rounds=1)

"""The wrapped strategy: its sampling disabled, its arrays saved, and a grid of the chosen nodes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, FedAvgM

from fedcell.errors import InputError
from fedcell.flower.wrapped import arrays_of, chosen_nodes, restore_arrays, sampling_all, with_node_config


def message(node: int, **records: Any) -> Message:
    return Message(RecordDict(records), node, "train")


def reply(node: int, values: Any) -> Message:
    arrays = ArrayRecord({"w": Array(np.array(values, dtype=np.float32))})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message(node))


def test_each_node_gets_a_record_of_its_own_and_shares_the_arrays() -> None:
    arrays, config = ArrayRecord({"w": Array(np.ones(3))}), ConfigRecord({"server-round": 1})
    one, two = (
        with_node_config(message(n, arrays=arrays, config=config), {"fedcell-share": s})
        for n, s in ((1, 0.3), (2, 0.7))
    )
    assert dict(one.content["config"]) == {"server-round": 1, "fedcell-share": 0.3}
    assert dict(two.content["config"]) == {"server-round": 1, "fedcell-share": 0.7}
    assert one.content["arrays"] is arrays
    assert dict(config) == {"server-round": 1}
    assert (one.metadata.dst_node_id, one.metadata.message_type) == (1, "train")


def test_a_strategy_takes_all_chosen_nodes_and_gets_its_settings_back() -> None:
    strategy = FedAdam(fraction_train=0.1, min_train_nodes=5, min_available_nodes=50)
    wrapped = DifferentialPrivacyServerSideFixedClipping(strategy, 0.1, 1.0, 5)
    with sampling_all(wrapped, 3):
        assert (strategy.fraction_train, strategy.min_train_nodes, strategy.min_available_nodes) == (1.0, 3, 3)
    assert (strategy.fraction_train, strategy.min_train_nodes, strategy.min_available_nodes) == (0.1, 5, 50)


@pytest.mark.parametrize("strategy", [FedAdam, FedAvgM])
def test_a_strategys_moments_survive_in_arrays(strategy: type[FedAvg]) -> None:
    def trained() -> FedAvg:
        new = strategy(server_momentum=0.9) if strategy is FedAvgM else strategy()
        for number in (1, 2):
            arrays = ArrayRecord({"w": Array(np.full(2, 1.0 / number, dtype=np.float32))})
            if hasattr(new, "current_arrays"):
                new.current_arrays = arrays if strategy is FedAvgM else {k: v.numpy() for k, v in arrays.items()}
            new.aggregate_train(number, [reply(1, (0.5, 2.0 * number))])
        return new

    before, after = trained(), strategy(server_momentum=0.9) if strategy is FedAvgM else strategy()
    kept = arrays_of(before)
    assert kept
    restore_arrays(after, kept)
    assert {k: v.tolist() for k, v in arrays_of(after).items()} == {k: v.tolist() for k, v in kept.items()}
    name = "momentum_vector" if strategy is FedAvgM else "m_t"
    assert type(getattr(after, name)) is type(getattr(before, name))


def test_a_strategy_that_waits_for_more_nodes_than_were_chosen_is_told_so() -> None:
    class Impatient(FedAvg):
        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            while len(list(grid.get_node_ids())) < 99:
                pass
            return []

    chosen = chosen_nodes(None, [1, 2])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="waits for more than the 2 nodes that the policy chose"):
        Impatient().configure_train(1, None, None, chosen)


def test_all_else_of_the_chosen_nodes_grid_is_the_real_ones() -> None:
    class Real:
        run = "the run"

        def get_nodes(self) -> list[Any]:
            return [SimpleNamespace(node_id=node) for node in (1, 2, 3)]

        def push_messages(self, messages: list[str]) -> list[str]:
            return [f"id of {one}" for one in messages]

    real: Any = Real()
    chosen = chosen_nodes(real, [1, 3])
    assert isinstance(chosen, Grid)
    assert list(chosen.get_node_ids()) == [1, 3]
    assert [node.node_id for node in chosen.get_nodes()] == [1, 3]
    messages: Any = ["a", "b"]
    assert list(chosen.push_messages(messages)) == ["id of a", "id of b"]
    assert chosen.run is real.run
    with pytest.raises(AttributeError):
        _ = chosen.anything_else  # type: ignore[attr-defined]

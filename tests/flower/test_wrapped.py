"""The wrapped strategy: its sampling disabled, its arrays saved, and a grid of the chosen nodes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, FedAvgM, FedMedian

from fedcell.errors import InputError
from fedcell.flower.wrapped import (
    UNTIMED,
    arrays_of,
    changed_numbers,
    chosen_nodes,
    evaluating,
    messages_for,
    name_of,
    overridden,
    own_numbers,
    own_weights,
    restore_arrays,
    restore_numbers,
    sampling_all,
    take_trained,
    unwrap,
    weight_key,
    weights_overridden,
    with_node_config,
)


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


def test_a_strategy_may_ask_for_its_nodes_twenty_times() -> None:
    chosen = chosen_nodes(None, [1, 2])  # type: ignore[arg-type]
    assert [list(chosen.get_node_ids()) for _ in range(20)] == [[1, 2]] * 20
    with pytest.raises(InputError, match="waits for more than the 2 nodes"):
        chosen.get_node_ids()


def test_names_settings_and_weights_are_those_of_the_strategies_inside() -> None:
    inner = FedAdam(fraction_train=0.5, min_train_nodes=3)
    outer = DifferentialPrivacyServerSideFixedClipping(inner, 0.1, 1.0, 5)
    assert unwrap(outer) == [outer, inner]
    assert (name_of(inner), name_of(outer)) == ("FedAdam", "DifferentialPrivacyServerSideFixedClipping(FedAdam)")
    assert overridden(outer) == ["FedAdam's fraction_train = 0.5", "FedAdam's min_train_nodes = 3"]
    assert overridden(FedAvg()) == []
    with evaluating(inner, 1):
        assert (inner.min_evaluate_nodes, inner.min_available_nodes, inner.min_train_nodes) == (1, 1, 3)
    with evaluating(inner, 9):
        assert (inner.min_evaluate_nodes, inner.min_available_nodes) == (2, 2)
    assert [weight_key(one) for one in (FedAvg(), FedAvg(weighted_by_key="n"), FedMedian(), outer)] == [
        "num-examples",
        "n",
        None,
        None,
    ]


def weighted(*weights: Any) -> list[Message]:
    replies = [reply(n, (float(n), 1.0)) for n in range(len(weights))]
    for message, weight in zip(replies, weights, strict=True):
        del message.content["metrics"]
        message.content["metrics"] = MetricRecord({} if weight is None else {"num-examples": weight, "loss": 0.5})
    return replies


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ((1, 3.0), [1.0, 3.0]),
        ((0, 3), [0.0, 3.0]),
        ((0, 0), None),
        ((-1, 3), None),
        ((1, 1e100), None),
        ((1, 9e99), [1.0, 9e99]),
        ((1, [3]), None),
        ((1, None), None),
    ],
)
def test_a_strategys_own_weights_are_known_if_all_replies_tell_them(weights: Any, found: Any) -> None:
    own = own_weights(FedAvg(), weighted(*weights))
    assert (None if own is None else own.tolist()) == found
    assert own_weights(FedMedian(), weighted(*weights)) is None
    two = weighted(1, 3)
    two[0].content["more"] = MetricRecord({"num-examples": 1})
    assert own_weights(FedAvg(), two) is None


def test_other_weights_are_the_models_alone_and_leave_nothing_behind() -> None:
    strategy, replies = FedAvg(), weighted(1, 1)
    for message, loss in zip(replies, (0.0, 1.0), strict=True):
        message.content.metric_records["metrics"]["loss"] = loss
    usual = strategy.train_metrics_aggr_fn
    with weights_overridden(strategy, replies, np.array([1.0, 3.0])):
        arrays, metrics = strategy.aggregate_train(1, replies)
    assert arrays is not None
    assert metrics is not None
    assert arrays["w"].numpy().tolist() == [0.75, 1.0]
    assert dict(metrics) == {"loss": 0.5}  # by the strategy's own key
    assert (strategy.weighted_by_key, strategy.train_metrics_aggr_fn) == ("num-examples", usual)
    assert [dict(m.content.metric_records["metrics"]) for m in replies] == [
        {"num-examples": 1, "loss": 0.0},
        {"num-examples": 1, "loss": 1.0},
    ]
    for weights, some in ((None, replies), (np.ones(2), weighted(1, None))):
        with weights_overridden(strategy, some, weights):
            assert strategy.weighted_by_key == "num-examples"


@pytest.mark.parametrize(
    ("record", "trained"),
    [
        (ConfigRecord({"train_s": 2.5, "first": True}), (2.5, True)),
        (ConfigRecord({"train_s": 0, "first": 1}), (0.0, False)),
        (ConfigRecord({"train_s": -0.1}), None),
        (ConfigRecord({"train_s": float("inf")}), None),
        (ConfigRecord({"train_s": float("nan")}), None),
        (ConfigRecord({"train_s": "2"}), None),
        (ConfigRecord({}), None),
        (MetricRecord({"train_s": 2.5}), None),
    ],
)
def test_what_was_measured_of_a_training_is_taken_out_of_its_reply(record: Any, trained: Any) -> None:
    message = reply(1, (1.0, 2.0))
    message.content["fedcell"] = record
    found = take_trained(message)
    assert found == (UNTIMED if trained is None else trained)
    assert "fedcell" not in message.content
    assert take_trained(message) is UNTIMED


def test_numbers_that_changed_are_saved_and_restored() -> None:
    outer = DifferentialPrivacyServerSideFixedClipping(FedAdam(eta=0.1), 0.1, 1.0, 5)
    before = own_numbers(outer)
    assert before["0/clipping_norm"] == 1.0
    assert before["1/eta"] == 0.1
    inner: Any = outer.strategy
    inner.eta, inner.new, inner.flag = 0.2, 7, True
    assert changed_numbers(outer, before) == {"1/eta": 0.2}
    other = DifferentialPrivacyServerSideFixedClipping(FedAdam(eta=0.1), 0.1, 1.0, 5)
    restore_numbers(other, {"1/eta": 0.2, "1/gone": 3.0})
    assert own_numbers(other)["1/eta"] == 0.2
    assert not hasattr(other.strategy, "gone")


def test_messages_are_made_for_the_chosen_nodes_and_others_are_dropped(log: pytest.LogCaptureFixture) -> None:
    class Grids:
        def get_node_ids(self) -> list[int]:
            return [1, 2, 3]

    class Some(FedAvg):
        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            return [message(n, arrays=arrays, config=config) for n in (1, 9)]

    arrays, config = ArrayRecord({"w": Array(np.ones(3))}), ConfigRecord({})
    grid: Any = Grids()
    made = messages_for(FedAvg(fraction_train=0.1), 1, arrays, config, grid, [3, 1])
    assert sorted(one.metadata.dst_node_id for one in made) == [1, 3]
    assert "did not use" not in log.text
    made = messages_for(Some(), 1, arrays, config, grid, [3, 1])
    assert [one.metadata.dst_node_id for one in made] == [1]
    assert "fedcell: Some did not use all nodes that the policy chose" in log.text

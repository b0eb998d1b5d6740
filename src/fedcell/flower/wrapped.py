"""The wrapped strategy: its own sampling disabled, its weights replaced, its arrays and numbers saved."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    Bulyan,
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    MultiKrum,
    QFedAvg,
    Strategy,
)
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.flower.client import RECORD
from fedcell.flower.compat import LOG
from fedcell.types import Floats

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo

_MAX_CALLS = 20
_MAX_WEIGHT = 1e100
WEIGHT = "fedcell-weight"
"""The metric that has a reply's balanced weight while the strategy takes the mean."""
_NO_WEIGHTED_MEAN = (Bulyan, FedMedian, FedTrimmedAvg, FedXgbBagging, FedXgbCyclic, MultiKrum, QFedAvg)
"""Strategies that are derived from FedAvg, but do not take the mean of all models, weighted by its key."""
R = TypeVar("R", ArrayRecord, ConfigRecord, MetricRecord)


class _ChosenNodes:
    """A Grid with some of its nodes only; all else is delegated to the real one."""

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        self._grid, self._nodes, self._calls = grid, list(nodes), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def get_node_ids(self) -> list[int]:
        """Return the chosen nodes; raise if a strategy keeps calling, because it would wait forever for more."""
        self._calls += 1
        if self._calls > _MAX_CALLS:
            raise InputError(
                f"the strategy waits for more than the {len(self._nodes)} nodes that the policy chose; "
                "lower its minimum"
            )
        return list(self._nodes)

    def get_nodes(self) -> "list[NodeInfo]":
        """Return the chosen nodes, with the SuperLink's information about them."""
        return [node for node in self._grid.get_nodes() if node.node_id in self._nodes]


Grid.register(_ChosenNodes)


def chosen_nodes(grid: Grid, nodes: Sequence[int]) -> Grid:
    """Return the grid with only these of its nodes."""
    return cast(Grid, _ChosenNodes(grid, nodes))


def unwrap(strategy: Strategy) -> list[Strategy]:
    """Return the strategy and those it wraps, as the differential-privacy wrappers do."""
    found = [strategy]
    while isinstance(inside := getattr(found[-1], "strategy", None), Strategy):
        found.append(inside)
    return found


def name_of(strategy: Strategy) -> str:
    """Return the class name, with those that it wraps in brackets."""
    names = [type(part).__name__ for part in unwrap(strategy)]
    return "(".join(names) + ")" * (len(names) - 1)


@contextmanager
def _changed(strategy: Strategy, changes: Mapping[str, Callable[[Any], Any]]) -> Iterator[None]:
    """Change these settings of the strategy, and of the strategies that it wraps, inside the block."""
    kept = [(part, name, getattr(part, name)) for part in unwrap(strategy) for name in changes if hasattr(part, name)]
    try:
        for part, name, value in kept:
            setattr(part, name, changes[name](value))
        yield
    finally:
        for part, name, value in kept:
            setattr(part, name, value)


def sampling_all(strategy: Strategy, count: int) -> AbstractContextManager[None]:
    """Let the strategy sample all ``count`` nodes inside the block: the policy has already chosen them."""
    minima = dict.fromkeys(("min_train_nodes", "min_available_nodes"), lambda _: count)
    return _changed(strategy, {"fraction_train": lambda _: 1.0, **minima})


def messages_for(
    strategy: Strategy,
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
    nodes: Sequence[int],
) -> list[Message]:
    """Return the training messages that the strategy makes for these nodes; it may leave some out.

    Args:
        strategy: the wrapped strategy.
        server_round: the round, from 1.
        arrays: the model.
        config: of training.
        grid: Flower's.
        nodes: their ids, at least one.
    """
    with sampling_all(strategy, len(nodes)):
        made = list(strategy.configure_train(server_round, arrays, config, chosen_nodes(grid, nodes)))
    if set(nodes) ^ {message.metadata.dst_node_id for message in made}:
        LOG.warning("fedcell: %s did not use all nodes that the policy chose", type(strategy).__name__)
    return [message for message in made if message.metadata.dst_node_id in set(nodes)]


def evaluating(strategy: Strategy, count: int) -> AbstractContextManager[None]:
    """Let the strategy not wait for more than ``count`` nodes for an evaluation, inside the block."""
    limits = ("min_evaluate_nodes", "min_available_nodes")
    return _changed(strategy, dict.fromkeys(limits, lambda value: min(value, count)))


def overridden(strategy: Strategy) -> list[str]:
    """Return the settings that have no effect because the policy chooses, such as ``FedAvg's fraction_train = 0.5``."""
    usual = {"fraction_train": 1.0, "min_train_nodes": 2, "min_available_nodes": 2}
    return [
        f"{type(part).__name__}'s {name} = {getattr(part, name):g}"
        for part in unwrap(strategy)
        for name, value in usual.items()
        if getattr(part, name, value) != value
    ]


def refuse_own_start(strategy: Strategy) -> None:
    """Raise if the strategy overrides ``start``: it would not be called, and what it logs or saves would be lost."""
    for part in unwrap(strategy):
        if type(part).start is not Strategy.start:
            raise InputError(
                f"{type(part).__name__} has a start() of its own, which Scheduled would not call; give what it does "
                "after a round to Scheduled(..., on_round=...), and what it does before the first to your ServerApp"
            )


def weight_key(strategy: Strategy) -> str | None:
    """Return the metric by which the strategy weights the models in their mean; None if it takes no such mean."""
    if isinstance(strategy, FedAvg) and not isinstance(strategy, _NO_WEIGHTED_MEAN):
        return str(strategy.weighted_by_key)
    return None


def own_weights(strategy: Strategy, replies: Sequence[Message]) -> Floats | None:
    """Return the (n,) weights that the strategy itself gives the models, up to a factor; None if they are equal."""
    key = weight_key(unwrap(strategy)[-1])
    if key is None:
        return None
    found = [record.get(key) for reply in replies for _, record in records_of(reply.content, MetricRecord)]
    if len(found) != len(replies) or not all(isinstance(weight, int | float) for weight in found):
        return None
    weights: Floats = np.array(found, dtype=np.float64)
    return weights if (weights >= 0.0).all() and 0.0 < weights.max() < _MAX_WEIGHT else None


@contextmanager
def weights_overridden(strategy: Strategy, replies: Sequence[Message], weights: Floats | None) -> Iterator[None]:
    """Let the strategy average the models with these weights inside the block; None leaves it alone.

    The clients' metrics are still averaged by the strategy's own key.
    """
    records = [record for reply in replies for _, record in records_of(reply.content, MetricRecord)]
    own: Any = weight_key(strategy)
    if weights is None or len(records) != len(replies) or not all(own in record for record in records):
        yield  # of replies that it cannot average, the strategy itself says why
        return
    kept = {name: getattr(strategy, name) for name in ("weighted_by_key", "train_metrics_aggr_fn")}

    def metrics_by_own_key(contents: list[RecordDict], _: str) -> MetricRecord:
        for record in records:
            record.pop(WEIGHT, None)
        found: MetricRecord = kept["train_metrics_aggr_fn"](contents, own)
        return found

    changed = {"weighted_by_key": WEIGHT, "train_metrics_aggr_fn": metrics_by_own_key}
    try:
        for record, weight in zip(records, weights, strict=True):
            record[WEIGHT] = float(weight)
        for name, value in changed.items():
            setattr(strategy, name, value)
        yield
    finally:
        for name, value in kept.items():
            setattr(strategy, name, value)
        for record in records:
            record.pop(WEIGHT, None)


NodeConfig = dict[str, float | int | str]
"""What a message's config says to its node alone."""


def with_node_config(message: Message, values: NodeConfig) -> Message:
    """Return a message with these values added to its ConfigRecord, of which strategies share one among all nodes."""
    content = RecordDict(dict(message.content))
    key, config = next(records_of(message.content, ConfigRecord), ("config", ConfigRecord()))
    content[key] = ConfigRecord({**config, **values})
    meta = message.metadata
    return Message(content, meta.dst_node_id, meta.message_type, ttl=meta.ttl, group_id=meta.group_id or None)


class Trained(NamedTuple):
    """What the mod ``timed`` measured of a training.

    Attributes:
        seconds: how long it took; NaN if that is not known.
        first: whether it was the first one of its process, which also loads what the app needs.
    """

    seconds: float
    first: bool = False


UNTIMED = Trained(math.nan)
"""Of an app without the mod."""


def take_trained(reply: Message) -> Trained:
    """Remove the record of the mod ``timed`` from the reply and return its content."""
    if not reply.has_content() or RECORD not in reply.content:
        return UNTIMED
    record = reply.content[RECORD]
    del reply.content[RECORD]
    value = record.get("train_s") if isinstance(record, ConfigRecord) else None
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        return UNTIMED
    return Trained(float(value), record.get("first") is True)


def records_of(content: RecordDict, kind: type[R]) -> Iterator[tuple[str, R]]:
    """Return the records of one kind by name; RecordDict's own properties copy them each time."""
    return ((key, record) for key, record in content.items() if isinstance(record, kind))


def arrays_of(strategy: Strategy) -> dict[str, NDArray[Any]]:
    """Return the strategy's internal arrays (FedAdam's moments, FedAvgM's momentum), to be saved."""
    found: dict[str, NDArray[Any]] = {}
    for depth, part in enumerate(unwrap(strategy)):
        for name, value in vars(part).items():
            for key, array in _items(value):
                found[f"{depth}/{name}/{key}"] = array
    return found


def _items(value: Any) -> list[tuple[str, NDArray[Any]]]:
    """Return a dict or a list of arrays as pairs; nothing for any other value."""
    pairs = [("d" + str(k), v) for k, v in value.items()] if isinstance(value, dict) else []
    pairs = [(f"l{i}", v) for i, v in enumerate(value)] if isinstance(value, list) else pairs
    return pairs if all(isinstance(v, np.ndarray) and v.dtype.kind in "fiu" for _, v in pairs) else []


def restore_arrays(strategy: Strategy, arrays: dict[str, NDArray[Any]]) -> None:
    """Restore what `arrays_of` returned."""
    values: dict[tuple[int, str], list[tuple[str, NDArray[Any]]]] = {}
    for path, array in arrays.items():
        level, name, key = path.split("/", 2)
        values.setdefault((int(level), name), []).append((key, array))
    parts = unwrap(strategy)
    for (depth, name), pairs in values.items():
        if depth < len(parts) and hasattr(parts[depth], name):
            listed = pairs[0][0].startswith("l")
            setattr(parts[depth], name, [a for _, a in pairs] if listed else {k[1:]: a for k, a in pairs})


def own_numbers(strategy: Strategy) -> dict[str, float]:
    """Return the strategy's own numbers (settings, and what it changes, such as an adaptive clipping norm)."""
    return {
        f"{depth}/{name}": value
        for depth, part in enumerate(unwrap(strategy))
        for name, value in vars(part).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def changed_numbers(strategy: Strategy, before: dict[str, float]) -> dict[str, float]:
    """Return those of the strategy's numbers that have changed since, to be saved."""
    now = own_numbers(strategy)
    return {name: value for name, value in now.items() if name in before and repr(value) != repr(before[name])}


def restore_numbers(strategy: Strategy, numbers: dict[str, float]) -> None:
    """Restore the numbers that `changed_numbers` returned; others stay as they are."""
    parts, own = unwrap(strategy), own_numbers(strategy)
    for path, value in numbers.items():
        depth, name = path.split("/", 1)
        if path in own:
            setattr(parts[int(depth)], name, value)

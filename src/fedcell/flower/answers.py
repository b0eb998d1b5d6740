"""How a ClientApp answers a policy that asks before it decides: what its loss is, or how far its training went.

What the server asks, and what it makes of the answers, is in asking.py; a ClientApp does not load that.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.flower.flwr_api import answer_query

ANSWER = "fedcell-answer"
"""The name of the MetricRecord with the answer, under ``loss`` or ``norm``."""
LOSS_ACTION = "fedcell_loss"
LOSS_QUERY = f"{MessageType.QUERY}.{LOSS_ACTION}"
ROUND, SAMPLES = "fedcell-round", "fedcell-samples"
HOLD, SEND = "fedcell-hold", "fedcell-send"
"""In the config of a training message: train, but keep the model; and: send the model that you kept."""
_HELD = "fedcell-held"


def answer_loss(app: ClientApp, loss: Callable[[Message, Context], float]) -> None:
    """Make a ClientApp answer policies that ask for the loss of the current model before they choose.

    Args:
        app: a ClientApp of Flower's Message API.
        loss: from the message and the Context to the mean loss of the message's model on the node's training data. The
            message has the ArrayRecord ``arrays`` and the ConfigRecord ``config``, which is that of training with
            ``fedcell-round`` (from 0) and, if the policy asks about some of the samples only, ``fedcell-samples``, how
            many are to be drawn.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> from fedcell.flower import answer_loss
        >>> def loss(message, context):
        ...     weights = message.content["arrays"]["weights"].numpy()
        ...     return float((weights**2).mean())  # yours: the model's mean loss on this node's data
        >>> answer_loss(ClientApp(), loss)
    """
    if not callable(loss):
        raise InputError(f"loss is a {type(loss).__name__}; give a function of a Message and a Context")

    def answer(message: Message, context: Context) -> Message:
        return _answering(message, loss=float(loss(message, context)))

    answer_query(app, LOSS_ACTION, answer)


def upload_when_asked(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A Flower mod for policies that choose after training: ``ClientApp(mods=[timed, upload_when_asked])``.

    Asked to, the node trains, keeps its model in the Context's state and answers with the length of its update; it
    sends the model if it is chosen. Other messages pass. Mods after it in the list, such as one that clips, do their
    work before the model is kept.

    Args:
        message: the message from the server.
        context: the node's context.
        call_next: the next mod, or the app itself.

    Returns:
        The reply: the app's own, the length of the update, or the model that was kept.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> from fedcell.flower import timed, upload_when_asked
        >>> app = ClientApp(mods=[timed, upload_when_asked])
    """
    config = _config_of(message)
    if SEND in config:
        return _sent(message, context, int(str(config[ROUND])))
    reply = call_next(message, context)
    if HOLD not in config or not reply.has_content():
        return reply
    norm = update_norm(_arrays_of(message), _arrays_of(reply))
    if math.isnan(norm):
        raise InputError("the reply's arrays are not those of the model, so that the update has no length")
    _forget(context)
    context.state[_HELD] = ConfigRecord({"round": int(str(config[ROUND]))})
    for key, record in reply.content.items():
        context.state[f"{_HELD}.{key}"] = record
    return _answering(message, norm=norm)


def update_norm(before: ArrayRecord | None, after: ArrayRecord | None) -> float:
    """Return the Euclidean length of an update; NaN if the two models do not have the same arrays of floats."""
    change = update_of(before, after)
    return math.nan if change is None else float(np.linalg.norm(change))


def update_of(before: ArrayRecord | None, after: ArrayRecord | None) -> NDArray[np.float32] | None:
    """Return an update (P,), all arrays of floats one after the other; None if they differ in name or shape."""
    if before is None or after is None:
        return None
    old, new = dict(_floats(before)), dict(_floats(after))
    if not old or {k: v.shape for k, v in old.items()} != {k: v.shape for k, v in new.items()}:
        return None
    return np.concatenate([(new[name] - array).ravel() for name, array in old.items()])


def _floats(arrays: ArrayRecord) -> Iterator[tuple[str, NDArray[np.float32]]]:
    found = ((name, array.numpy()) for name, array in arrays.items())
    return ((name, array.astype(np.float32, copy=False)) for name, array in found if array.dtype.kind == "f")


def _config_of(message: Message) -> ConfigRecord:
    """The config of a training message of fedcell's; empty for others."""
    if message.metadata.message_type != MessageType.TRAIN or not message.has_content():
        return ConfigRecord()
    configs = (record for record in message.content.values() if isinstance(record, ConfigRecord))
    return next((record for record in configs if ROUND in record), ConfigRecord())


def _arrays_of(message: Message) -> ArrayRecord | None:
    return next((record for record in message.content.values() if isinstance(record, ArrayRecord)), None)


def _answering(message: Message, **answer: float) -> Message:
    return Message(RecordDict({ANSWER: MetricRecord(dict(answer))}), reply_to=message)


def _sent(message: Message, context: Context, wanted: int) -> Message:
    """The model that was kept, which is then forgotten; one of another round is never sent."""
    kept = context.state.get(_HELD)
    found = kept.get("round") if isinstance(kept, ConfigRecord) else None
    content = {key.removeprefix(f"{_HELD}."): r for key, r in context.state.items() if key.startswith(f"{_HELD}.")}
    _forget(context)
    if found != wanted:
        has = "none" if found is None else f"that of round {int(str(found)) + 1}"
        raise InputError(f"the server asks for the model of round {wanted + 1}, and this node has {has}")
    return Message(RecordDict(content), reply_to=message)


def _forget(context: Context) -> None:
    for key in [key for key in context.state if key == _HELD or key.startswith(f"{_HELD}.")]:
        del context.state[key]

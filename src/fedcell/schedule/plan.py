"""What is decided for a round (Plan), the times it is planned with (Links), and the times that follow (Timing)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedcell.quantisation import WEIGHT_BITS, upload_part
from fedcell.schedule.bandwidth import times
from fedcell.schedule.laws import Density, Law
from fedcell.types import Bools, Floats, Indices


class Times(Protocol):
    """Training and upload times of M devices, and what they are for: `Links` and `RoundView` have them."""

    @property
    def upload_s(self) -> Floats:
        """(M,) c_i, seconds to upload a model with the entire band."""

    @property
    def compute_s(self) -> Floats:
        """(M,) t_i, seconds of local training."""

    @property
    def law(self) -> Law:
        """How the uploads share what carries them."""

    @property
    def epochs(self) -> float:
        """The local epochs that ``compute_s`` is for."""

    @property
    def weights(self) -> float | None:
        """The number of the model's weights; None if that is not known."""

    @property
    def tensors(self) -> int:
        """The number of arrays that they are in."""

    @property
    def bits(self) -> float:
        """The bits a weight that ``upload_s`` is for."""

    @property
    def overhead_bits(self) -> float:
        """The bits that an upload has beside the model."""


@dataclass(frozen=True, eq=False)
class Links:
    """Training and upload times of M devices: what is known of them before a round, or what is true.

    Attributes:
        upload_s: (M,) seconds to upload a model with the entire band; NaN where nothing is known.
        compute_s: (M,) seconds of local training; likewise.
        law: how the uploads share what carries them.
        epochs: how often a device goes through its samples in that training.
        weights: the number of the model's weights; None if it is not known.
        tensors: the number of arrays that they are in.
        bits: the bits a weight of that upload; 32 for the weights as they are.
        overhead_bits: the bits that an upload has beside the model, such as headers of protocols.

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.plan import Links
        >>> Links(upload_s=np.array([0.5, np.nan]), compute_s=np.full(2, np.nan)).upload_s.tolist()
        [0.5, nan]
    """

    upload_s: Floats
    compute_s: Floats
    law: Law = Density()  # noqa: RUF009 - frozen, without fields
    epochs: float = 1.0
    weights: float | None = None
    tensors: int = 1
    bits: float = WEIGHT_BITS
    overhead_bits: float = 0.0

    def take(self, devices: Indices) -> "Links":
        """Return those of some of the devices."""
        return replace(
            self, upload_s=self.upload_s[devices], compute_s=self.compute_s[devices], law=self.law.take(devices)
        )


@dataclass(frozen=True, eq=False)
class Timing:
    """When the n scheduled devices of a round started to upload and finished, in seconds from the start of the round.

    Attributes:
        began_s: (n,) start of the upload, in the plan's order; NaN where it was not observed.
        finish_s: (n,) end of the upload; NaN for a device that has not delivered.
        censored: (n,) booleans: the device took at least this long, as one that had not delivered by the deadline; None
            if all times are what they were.

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.plan import Timing
        >>> timing = Timing(began_s=np.array([2.0, 3.0]), finish_s=np.array([6.0, np.nan]))
        >>> (timing.finish_s - timing.began_s).tolist()
        [4.0, nan]
    """

    began_s: Floats
    finish_s: Floats
    censored: Bools | None = None


_EACH = {"per": "device"}
"""Of a field with one entry for each scheduled device: all that takes some of the devices goes by it."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A policy's decision: which devices train this round, with which share of the band, for how long, with what size.

    Attributes:
        devices: (n,) indices of the scheduled devices, ascending; empty if no device is scheduled.
        shares: (n,) the fraction of the band that each of them gets; they sum to 1, or to less in whole blocks. With
            dedicated lines each is 1.
        round_s: the time of the round in seconds, according to the times in the view.
        starts_s: (n,) when each of them has the model and starts to train, in seconds from the start of the round; None
            if the downlink takes no time.
        epochs: (n,) how often each goes through its samples; None for as often as the task says.
        bits: (n,) how many bits a weight each uploads, a whole number from 2 to 16, or 32 for the weights as they are;
            None for what the task says.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 3.0, 9.0], compute_s=[2.0, 2.0, 9.0])
        >>> plan = fc.All(max_devices=2).decide(view, np.random.default_rng(0))
        >>> plan.devices.tolist(), plan.shares.tolist(), plan.round_s
        ([0, 1], [0.25, 0.75], 6.0)
        >>> plan.finish_s(upload_s=[1.0, 3.0, 9.0], compute_s=[4.0, 2.0, 9.0]).tolist()  # device 0 trained longer
        [8.0, 6.0]
    """

    devices: Indices = field(metadata=_EACH)
    shares: Floats = field(metadata=_EACH)
    round_s: float
    starts_s: Floats | None = field(default=None, metadata={**_EACH, "text": "when the device has the model"})
    epochs: Floats | None = field(
        default=None, metadata={**_EACH, "text": "local epochs, where the policy decides them"}
    )
    bits: Floats | None = field(
        default=None, metadata={**_EACH, "text": "bits a weight of the upload, where the policy decides them"}
    )

    @classmethod
    def empty(cls, round_s: float) -> "Plan":
        """Return the plan of a round in which nobody trains, for so many seconds."""
        return cls(np.empty(0, np.int64), np.empty(0), round_s)

    def take(self, which: Indices | Bools) -> "Plan":
        """Return the plan for some of the n scheduled devices: indices or booleans. They keep what they were given."""
        columns = {name: getattr(self, name) for name in PLAN_COLUMNS}
        return replace(self, **{name: column[which] for name, column in columns.items() if column is not None})

    def starting(self, starts_s: Floats | None) -> "Plan":
        """Return the plan with other times, (n,), at which its devices have the model; None if at once."""
        return self if starts_s is self.starts_s else replace(self, starts_s=starts_s)

    def starts(self) -> Floats:
        """Return (n,) when each starts to train, in seconds from the start of the round."""
        return np.zeros(self.devices.size) if self.starts_s is None else self.starts_s

    def work(self, epochs: float) -> Floats | None:
        """Return (n,) what each trains as a part of a training of so many epochs; None for all of it."""
        return None if self.epochs is None else self.epochs / epochs

    def part(self, links: Times) -> Floats | None:
        """Return (n,) what each uploads as a part of what ``links.upload_s`` is for; None for all of it."""
        if self.bits is None:
            return None
        return upload_part(links.weights, links.tensors, self.bits, links.bits, links.overhead_bits)

    def timing(self, links: Times) -> Timing:
        """Return when each scheduled device starts to upload and finishes.

        Device i starts to upload at ``starts_i + work_i t_i``. The upload takes ``part_i`` times what that of a whole
        model takes with its share, ``c_i / g_i`` under the paper's law.

        Args:
            links: the times of all M devices, expected or true.
        """
        return self.timing_of(*self.seconds(links))

    def timing_of(self, training_s: Floats, upload_s: Floats) -> Timing:
        """Return the same of what `seconds` returns."""
        if self.starts_s is None:
            return Timing(training_s, training_s + upload_s)
        return Timing(self.starts_s + training_s, self.starts_s + (training_s + upload_s))

    def seconds(self, links: Times) -> tuple[Floats, Floats]:
        """Return (n,) and (n,): how long each trains, and how long its upload takes with its share."""
        i, law = self.devices, links.law.take(self.devices)
        c, t, work, part = links.upload_s[i], links.compute_s[i], self.work(links.epochs), self.part(links)
        if work is not None:
            t = work * t
        if part is not None:
            c, law = part * c, law.scaled(part)
        return t, law.upload_s(c, self.shares)

    def finish_s(self, upload_s: ArrayLike, compute_s: ArrayLike, law: Law = Density()) -> Floats:  # noqa: B008 - frozen
        """Return when each scheduled device delivers its model: t_i + c_i / g_i under the paper's law.

        Args:
            upload_s: (M,) c_i of all devices, seconds with the entire band.
            compute_s: (M,) t_i of all devices, seconds.
            law: of the M devices' uploads.

        Returns:
            (n,) seconds from the start of the round. See `timing` for plans that say ``epochs`` or ``bits``.
        """
        return self.timing(Links(*times(upload_s, compute_s), law)).finish_s


PLAN_COLUMNS = tuple(column.name for column in fields(Plan) if "per" in column.metadata)
"""The fields of Plan with one entry for each scheduled device."""


@dataclass(frozen=True, eq=False)
class Report:
    """What came of a round, for `Policy.learn`.

    Attributes:
        devices: (n,) indices in the view of the devices whose models arrived, at least one.
        epochs: (n,) how often each went through its samples.
        bits: (n,) how many bits a weight each uploaded.
        round_s: how long the round took, in seconds.
        signals: what they reported, by the column of the view that has it afterwards: ``losses`` (n,), and what the
            policy's class says that it uses, such as ``updates`` (n, d).

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.plan import Report
        >>> report = Report(np.array([3]), np.ones(1), np.full(1, 32.0), 9.5, {"losses": np.array([0.7])})
        >>> report.signals["losses"].tolist()
        [0.7]
    """

    devices: Indices
    epochs: Floats
    bits: Floats
    round_s: float
    signals: Mapping[str, Floats]


@dataclass(frozen=True, eq=False)
class Question:
    """What a policy asks some devices before it decides; see `Policy.ask`.

    Attributes:
        devices: (n,) indices of the devices that are asked.
        about: ``"loss"``: the loss of the current model on a device's own training data, for which it gets the model;
            or ``"norm"``: the length of its update, for which it trains first.
        samples: on how many of its samples, drawn at random, a device evaluates the model; None for all.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> fc.Question(np.array([0, 2]), "loss", samples=100).about
        'loss'
    """

    devices: Indices
    about: Literal["loss", "norm"]
    samples: int | None = None

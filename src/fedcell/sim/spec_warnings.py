"""Specs that are valid but may not say what is meant: warnings, and notes of the commands."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from fedcell import units
from fedcell.errors import InputError
from fedcell.quantisation import WEIGHT_BITS
from fedcell.schedule.laws import LAWS
from fedcell.sim.spec import Spec
from fedcell.sim.task import layers


class SpecWarning(UserWarning):
    """A spec can be run, but may not say what is meant.

    Example:
        >>> import warnings, fedcell as fc
        >>> spec = fc.Spec(rounds=1, cell={"model_bits": 1000}, task=fc.TaskSpec(hidden=[4]))
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     records = list(fc.simulate(spec))
        >>> [warning.category.__name__ for warning in caught]
        ['SpecWarning']
    """


def warnings_of(runs: Sequence[Spec], *, here: bool = True) -> list[str]:
    """Return what may not be meant in these runs; ``here``: whether this machine trains them, and so has their data."""
    found = [_power_follows_the_band(runs), _nothing_is_quantised(runs) if here else ""]
    return [sentence for sentence in found if sentence]


def warn(runs: Sequence[Spec], *, here: bool = True) -> None:
    """Warn of what may not be meant in these runs, with a SpecWarning each; see spec_warnings."""
    for sentence in warnings_of(runs, here=here):
        warnings.warn(sentence, SpecWarning, stacklevel=3)


@contextmanager
def without_spec_warnings() -> Iterator[None]:
    """Without these warnings: they were said in another way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecWarning)
        yield


def _power_follows_the_band(runs: Sequence[Spec]) -> str:
    """Under a law of total powers a density over another band is another phone."""
    laws = {line: LAWS.known(line) for line in {run.cell.law for run in runs}}
    named = [line for line, law in laws.items() if law is not None and law.needs_snr]
    mine = [run for run in runs if run.cell.law in named and run.devices.power_dbm is None]
    if len({run.cell.bandwidth_hz for run in mine}) < 2:
        return ""
    watts = [
        run.cell.bandwidth_hz * density
        for run in mine
        for density in run.devices.density_w_per_hz(run.cell.bandwidth_hz).tolist()
    ]
    low, high = (units.ratio_to_db(value) + 30.0 for value in (min(watts), max(watts)))
    return (
        f"cell.bandwidth_hz varies under the law {mine[0].cell.law}, and with it the devices' total power, which is "
        f"devices.power_w_per_hz times the band: from {low:.1f} to {high:.1f} dBm; give devices.power_dbm to keep it"
    )


def _nothing_is_quantised(runs: Sequence[Spec]) -> str:
    """A size of an upload is a size, not a compression."""
    for run in runs:
        if run.cell.given_model_bits is None or run.task.compression != "none":
            continue
        try:
            weights = sum(prod(shape) for shape in layers(run.task).values())
        except InputError:  # the run itself will say it
            continue
        if run.cell.model_bits < WEIGHT_BITS * weights:
            return (
                f"cell.model_bits is {run.cell.model_bits:,}, less than {WEIGHT_BITS} bits for each of the model's "
                f"{weights:,} weights, but nothing is quantised: uploads take as long as compressed ones, and the "
                "models arrive exact; leave it out, or set task.compression to quantise:bits=8, which rounds them"
            )
    return ""

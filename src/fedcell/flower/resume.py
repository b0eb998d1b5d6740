"""A run that is saved after each round, and resumed: the state directory and what the wrapped strategy keeps."""

from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy

from fedcell.errors import InputError
from fedcell.flower.inner import arrays_of, changed_numbers, own_numbers, restore_arrays, restore_numbers
from fedcell.flower.privacy import require_resumable, restore_spent, spent
from fedcell.flower.replies import Form
from fedcell.flower.roster import Roster
from fedcell.flower.state import Run, load_arrays, load_run, load_spent, require_same_model, save, save_spent


@dataclass(frozen=True)
class Resumed:
    """Where a saved run stands.

    Attributes:
        run: its rounds.
        roster: the devices met, and what is known of them.
        arrays: its model.
    """

    run: Run
    roster: Roster
    arrays: ArrayRecord


@dataclass
class Saving:
    """The state directory of a run.

    Attributes:
        folder: the directory; None if nothing is saved.
        strategy: the wrapped strategy.
    """

    folder: Path | None
    strategy: Strategy

    def __post_init__(self) -> None:
        self._at_start = own_numbers(self.strategy)

    def resume(self, own: Run, model: Form) -> Resumed | None:
        """Return the run in the directory, and give the strategy back what it kept; None if there is none.

        Args:
            own: the run that the app wants: policy, seed, strategy and averaging must be those of the saved one.
            model: the form of the app's model.
        """
        if self.folder is None:
            return None
        already = load_spent(self.folder)
        if not (self.folder / "state.json").exists():
            if already:  # of a server that was killed in its first round
                restore_spent(self.strategy, already)
            save_spent(self.folder, spent(self.strategy))
            return None
        run = load_run(self.folder)
        for what in ("policy", "seed", "strategy", "averaging"):
            theirs, ours = getattr(run, what), getattr(own, what)
            if theirs != ours:
                raise InputError(
                    f"{self.folder} has a run whose {what} is {theirs}, not {ours}; give another directory or remove it"
                )
        roster, arrays, inner = load_arrays(self.folder, run)
        require_same_model(self.folder, arrays, model)
        require_resumable(self.strategy)
        restore_arrays(self.strategy, inner)
        restore_numbers(self.strategy, run.numbers)
        restore_spent(self.strategy, already)
        return Resumed(run, roster, ArrayRecord({name: Array(array) for name, array in arrays.items()}))

    def keep_spent(self) -> None:
        """Save what the round just averaged has spent of the privacy, before anybody gets its model."""
        if self.folder is not None:
            save_spent(self.folder, spent(self.strategy))

    def keep(self, run: Run, roster: Roster, arrays: ArrayRecord) -> None:
        """Save the state after the last of the run's rounds."""
        if self.folder is not None:
            model = {name: array.numpy() for name, array in arrays.items()}
            numbers = changed_numbers(self.strategy, self._at_start)
            save(self.folder, replace(run, numbers=numbers), roster, model, arrays_of(self.strategy))

"""Final models of runs in files: where they go, how they are written, read back and evaluated."""

import json
import os
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedcell import __version__
from fedcell.errors import InputError, did_you_mean, printable
from fedcell.files import check_output, make_folder, plain_name, read_npz, write_output
from fedcell.plugins import without_imports
from fedcell.runs.store import spec_document
from fedcell.runs.stored import document_in
from fedcell.sim.spec import Spec, TaskSpec, parse_stored
from fedcell.sim.task import class_accuracy, evaluate_models, layers
from fedcell.types import Floats

Arrays = dict[str, NDArray[np.float32]]

ENDINGS = (".safetensors", ".npz")
MAX_HEADER_BYTES = 100_000_000  # as in the safetensors library
_TEXTS = "__metadata__"


def write_arrays(
    file: IO[bytes], ending: str, arrays: Mapping[str, NDArray[np.float32]], about: Mapping[str, str]
) -> None:
    """Write arrays, in their order, and texts by name, as ``.safetensors`` or ``.npz``."""
    if ending == ".npz":
        np.savez(file, **arrays, **{_TEXTS: np.array(json.dumps(dict(about)))})  # type: ignore[arg-type]
        return
    header: dict[str, Any] = {_TEXTS: dict(about)}
    at = 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + 4 * array.size]}
        at += 4 * array.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the arrays begin at a multiple of 8 bytes
    file.write(struct.pack("<Q", len(text)) + text)
    for array in arrays.values():
        file.write(array.astype("<f4").tobytes())


def read_arrays(path: str | Path) -> tuple[Arrays, dict[str, str]]:
    """Read a file that `write_arrays` wrote, or one like it with float32 arrays: arrays and texts by name."""
    place = Path(path)
    if place.suffix not in ENDINGS:
        raise InputError(f"{path} is not the name of a model file; give one that ends with {' or '.join(ENDINGS)}")
    if place.exists() and not place.is_file():  # a pipe would never end
        raise InputError(f"cannot read {path}: it is not a regular file; give a model file")
    try:
        with place.open("rb") as file:
            return _read_npz(file) if place.suffix == ".npz" else _read_safetensors(file)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; give a model file") from None
    except Exception as error:  # whatever somebody has written there
        reason = printable(" ".join(str(error).split())[:200])
        raise InputError(f"{path} is not a whole model file ({reason}); save the model again") from None


def _read_npz(file: IO[bytes]) -> tuple[Arrays, dict[str, str]]:
    content = read_npz(file)
    about = json.loads(str(content.pop(_TEXTS, "{}")))
    return {name: np.asarray(array, np.float32) for name, array in content.items()}, dict(about)


def _read_safetensors(file: IO[bytes]) -> tuple[Arrays, dict[str, str]]:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"its header would have {length} bytes")
    text = file.read(length)
    if len(text) < length:
        raise ValueError("it ends within its header")
    header = dict(json.loads(text))
    about = header.pop(_TEXTS, {})
    content, at, arrays = file.read(), 0, Arrays()
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if entry["dtype"] != "F32" or begin != at or end - begin != 4 * prod(entry["shape"]):
            raise ValueError(f"{name[:60]!r} is no float32 array of its shape, or not where it should be")
        arrays[name] = np.frombuffer(content[begin:end], "<f4").reshape(entry["shape"]).astype(np.float32)
        at = end
    if at != len(content):
        raise ValueError(f"{len(content)} bytes of arrays instead of {at}")
    return arrays, dict(about)


@dataclass(frozen=True, eq=False)
class Score:
    """How good a model is on the test set.

    Attributes:
        accuracy: the fraction of the test samples that it gets right.
        loss: its mean loss, in nats.
        class_accuracy: (classes,) the same fraction for the samples of each class; NaN where there are none.

    Example:
        >>> import fedcell as fc
        >>> fc.Score(accuracy=0.75, loss=0.9, class_accuracy=[0.5, 1.0]).accuracy
        0.75
    """

    accuracy: float
    loss: float
    class_accuracy: Floats


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The final model of a run, as a file has it.

    Reading the file runs nobody's code, and neither does ``spec``.

    Attributes:
        arrays: by name, as in the ``state_dict`` of the PyTorch module: weights (out, in, ...) and biases.
        document: the run's spec as a plain document.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=2", rounds=2, task=fc.TaskSpec(hidden=[4]))
        >>> *_, run = fc.Runner([spec], on="threads", models=True)
        >>> fc.save_model("two-rounds.safetensors", spec, run.model)
        >>> model = fc.load_model("two-rounds.safetensors")
        >>> {name: array.shape for name, array in model.arrays.items()}
        {'1.weight': (4, 784), '1.bias': (4,), '3.weight': (10, 4), '3.bias': (10,)}
        >>> model.spec.policy, model.evaluate().class_accuracy.shape
        ('random:k=2', (10,))
    """

    arrays: Arrays
    document: dict[str, Any]

    @property
    def spec(self) -> Spec:
        """The run that trained it."""
        return parse_stored(self.document, "the model's run")

    def evaluate(self, *, allow_import: bool = False) -> Score:
        """Evaluate the model on the test set of its run.

        Args:
            allow_import: whether a module that the file names as ``module:function``, of a model of one's own, may be
                imported, and so run.
        """
        with nullcontext() if allow_import else without_imports("call evaluate(allow_import=True) if you trust it"):
            return self._score(self.spec.task)

    def _score(self, task: TaskSpec) -> Score:
        expected = layers(task)
        if {name: array.shape for name, array in self.arrays.items()} != expected:
            raise InputError(f"the arrays of the model are not those of its task; {_shapes(expected)} are")
        models = np.concatenate([self.arrays[name].ravel() for name in expected])[np.newaxis]
        found = evaluate_models(task, models)
        return Score(float(found.accuracy[0]), float(found.loss[0]), class_accuracy(task, models)[0])


def save_model(path: str | Path, run: Spec, model: NDArray[np.float32]) -> None:
    """Write a run's final model into a file, with the run's spec.

    Args:
        path: ends with ``.safetensors`` or ``.npz``.
        run: a single run.
        model: (P,) its model, as RunDone and Store.model give it.

    Returns:
        None: the file is written whole, or an InputError says why not.

    Example:
        >>> import numpy as np, fedcell as fc
        >>> spec = fc.Spec(rounds=1, task=fc.TaskSpec(hidden=[]))
        >>> fc.save_model("zeros.npz", spec, np.zeros(7850, np.float32))
    """
    place = checked_ending(Path(path))
    shapes = layers(run.task)
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    if model.shape != (sum(sizes),):
        raise InputError(f"the model has shape {model.shape}; that of the run has ({sum(sizes)},)")
    parts = np.split(model, np.cumsum(sizes)[:-1])
    arrays = {name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)}
    about = {"fedcell": __version__, "spec": json.dumps(spec_document(run), allow_nan=False)}
    write_output(place, lambda file: write_arrays(file, place.suffix, arrays, about))


def load_model(path: str | Path) -> SavedModel:
    """Read a model that ``save_model``, ``fedcell race --save-model`` or ``fedcell results`` wrote.

    Args:
        path: the file.

    Returns:
        SavedModel: its arrays and its run.

    Example:
        >>> import numpy as np, fedcell as fc
        >>> fc.save_model("zeros.npz", fc.Spec(rounds=1, task=fc.TaskSpec(hidden=[])), np.zeros(7850, np.float32))
        >>> score = fc.load_model("zeros.npz").evaluate()  # all zeros: every digit is taken for a 0
        >>> round(score.accuracy, 3), [float(accuracy) for accuracy in score.class_accuracy[:3]]
        (0.098, [1.0, 0.0, 0.0])
    """
    arrays, about = read_arrays(path)
    try:
        document = document_in(about["spec"])
        _ = document["task"], document["policy"]
    except Exception:  # whatever somebody has written there
        raise InputError(f"{path} does not say which run it is of; give a file that fedcell wrote") from None
    return SavedModel(arrays, document)


def checked_ending(path: Path) -> Path:
    """Return the path of a model file, or raise unless we write files of that kind."""
    if path.suffix not in ENDINGS:
        raise InputError(
            f"cannot write a model as {str(path)[:200]}; give a name that ends with {' or '.join(ENDINGS)}"
        )
    return path


def model_paths(place: str, runs: Mapping[str, Spec], option: str) -> dict[str, Path]:
    """Where the models of runs go, by their keys; refused if anything cannot be written there.

    Args:
        place: a folder, which is made; a file, for a single run; or a name in which {policy}, {seed} and {key} stand
            for those of a run.
        runs: whose models, by key.
        option: what the user gave, for messages.
    """
    place = os.path.expanduser(place)  # the shell leaves ~ alone in a quoted name
    name = place.rpartition("/")[2]
    if "{" not in place and Path(place).suffix not in ENDINGS:
        if place.strip() in ("", "-") or (Path(place).suffix and name and not Path(place).is_dir()):
            raise InputError(
                f"{option} is {place[:200]!r}; give a folder (with a / at its end), or a name that ends with "
                f"{' or '.join(ENDINGS)}"
            )
        make_folder(Path(place), option)
        place = f"{place.rstrip('/')}/{_usual_name(list(runs.values()))}.safetensors"
    paths = {key: checked_ending(Path(_filled(place, key, run, option))) for key, run in runs.items()}
    if len(set(paths.values())) < len(paths):
        raise InputError(
            f"{option} {place[:200]} gives several of the {len(paths)} runs one name; give a folder, or put "
            "{policy}, {seed} or {key} into the name"
        )
    checked = set[Path]()
    for path in paths.values():
        if path.parent not in checked or path.exists():
            check_output(path)
        checked.add(path.parent)
    return paths


def _usual_name(runs: Sequence[Spec]) -> str:
    """The policy and the seed, with the key where that does not tell the runs apart."""
    alike = len({(run.policy, run.seed) for run in runs}) < len(runs)
    return "{policy}-seed{seed}" + "-{key}" * alike


def _filled(template: str, key: str, run: Spec, option: str) -> str:
    values = {"policy": plain_name(run.policy), "seed": str(run.seed), "key": key}

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise InputError(f"{option} has {found[0][:60]}; {did_you_mean(found[1][:60], values)}")
        return values[found[1]]

    return re.sub(r"\{([^{}]*)\}", value, template)


def _shapes(expected: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in list(expected.items())[:6])

"""Keys of version 0.2.0 stay what they were, so that its stored runs are found again; what changed has new ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.learn.partition import label_counts, partition
from fedcell.sim.spec import parse_spec

FROZEN = json.loads((Path(__file__).parents[1] / "fixtures" / "keys_0_2.json").read_text())
"""500 documents of version 0.2.0, by what they change of its defaults, and their keys."""


def document_of(changes: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(FROZEN["base"]))
    for name, value in changes.items():
        *part, field = name.split(".")
        (document[part[0]] if part else document)[field] = value
    return document


def test_the_documents_of_version_0_2_have_their_keys() -> None:
    for run in FROZEN["runs"]:
        spec = parse_spec({"version": 1} | document_of(run["changes"]), "fixture")
        assert spec.key() == run["key"], run["changes"]


def test_only_balanced_labels_have_new_keys() -> None:
    new = [
        run["changes"].get("task.partition", "labels:2")
        for run in FROZEN["runs"]
        if parse_spec(document_of(run["changes"]), "fixture").key() != run["key"]
    ]
    assert len(new) > 300
    assert {text for text in new if not text.startswith("labels:") or "free" in text} == set()


@pytest.mark.parametrize(
    "text", ["labels:2", "labels:per_device=2", "labels:L=2,mode=balanced", "labels:2,balanced,random"]
)
def test_a_partition_has_one_key_however_it_is_written(text: str) -> None:
    assert fc.Spec(task=fc.TaskSpec(partition=text)).key() == fc.Spec().key()


def test_a_file_of_version_1_means_the_partition_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text('version = 1\n[grid]\n"task.partition" = ["labels:1", "iid"]\nseed = [0, 1]\n')
    spec = fc.load_spec(tmp_path / "old.toml")
    assert spec.task.partition == "labels:per_device=2,order=numbered"
    assert spec.grid["task.partition"] == ["labels:per_device=1,order=numbered", "iid"]
    assert fc.load_spec(tmp_path / "old.toml") == spec
    (tmp_path / "new.toml").write_text(spec.to_toml())
    assert fc.load_spec(tmp_path / "new.toml") == spec


def test_other_versions_are_refused() -> None:
    with pytest.raises(fc.InputError, match="version is 3; input should be 2"):
        parse_spec({"version": 3}, "file.toml")


def labels_of_five(kind: str, seed: int) -> list[int]:
    """How many of ten labels devices 0 to 4, 5 to 9, ... of 20 hold together."""
    labels = np.repeat(np.arange(10), 100)
    parts = partition(labels, 20, kind, np.random.default_rng(seed))
    held = label_counts(labels, parts, 10) > 0
    return [int(held[i : i + 5].any(axis=0).sum()) for i in range(0, 20, 5)]


def test_device_numbers_say_nothing_about_the_labels() -> None:
    """A random set of five devices with two labels each holds 7.3 labels; in version 0.2 consecutive ones held all."""
    assert all(labels_of_five("labels:2,order=numbered", seed) == [10] * 4 for seed in range(10))
    held = np.array([labels_of_five("labels:2", seed) for seed in range(200)])
    assert 7.0 < held.mean() < 7.6


def test_the_shuffled_partition_is_the_numbered_one_with_other_device_numbers() -> None:
    labels = np.random.default_rng(5).integers(0, 10, 2000)
    new, old = (
        partition(labels, 20, kind, np.random.default_rng(3)) for kind in ("labels:2", "labels:2,order=numbered")
    )
    of_new, of_old = (sorted(tuple(np.unique(labels[part])) for part in parts) for parts in (new, old))
    assert of_new == of_old
    assert [tuple(part) for part in new] != [tuple(part) for part in old]

"""The GPU kernels' own text, compiled for the CPU: thread by thread against the CPU kernel."""

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcell.errors import InputError
from fedcell.learn.data import Dataset, load_dataset
from fedcell.learn.engine import HostUpdates, Job
from fedcell.learn.mlp import MlpEngine
from harness import run

pytest.importorskip("torch")

from fedcell.learn.mlp_cuda import (
    JOB,
    MlpCudaEngine,
    Shape,
    packed,
    shape_of,
    tile_order,
    training_rows,
    unsupported_reason,
)

ENTRIES = """
extern "C" void train_all(int blocks, int bytes, const float* starts, float* models, const char* data,
                          const unsigned short* places, const float* tiles, const double* unit_sums,
                          const long long* order, const Job* jobs, double factor, double inverse, double center,
                          int batch, int none, double* losses) {
    if (bytes != SLOTS * SLOT + (int)sizeof(Shared)) abort();
    launch(blocks, THREADS + 2 * HELPERS, bytes, [=] {
        train(starts, models, data, places, tiles, unit_sums, order, jobs, factor, inverse, center, batch, none,
              losses);
    });
}
"""


def pointers(*arrays: Any) -> list[Any]:
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]


def emulated(data: Dataset, folder: Path, jobs: list[Job], batch: int) -> tuple[Any, Any]:
    """Models and losses by the kernels, as the engine calls them."""
    shape = shape_of(data)
    header = Path(__file__).with_name("cuda_on_cpu.h").read_text()
    (folder / "kernel.cpp").write_text(header + shape.source() + ENTRIES)
    run(
        "g++",
        "-O1",
        "-w",
        "-shared",
        "-fPIC",
        "-std=c++17",
        "-o",
        str(folder / "kernel.so"),
        str(folder / "kernel.cpp"),
    )
    kernels = ctypes.CDLL(str(folder / "kernel.so"))
    factor = 1 / ((255 if shape.pixels else 1) * data.scale)
    count, arrays = len(jobs), training_rows(data, factor)
    rows = np.arange(count)[::-1]  # the results in another order than the jobs
    sent = packed(jobs, np.arange(count), rows, batch, 0.01, len(data.train_x), pin=False).numpy()
    described, order = sent[: count * JOB.itemsize], sent[count * JOB.itemsize :]
    starts, losses = np.stack([job.start for job in jobs]), np.full((count, 2), np.nan)
    models = np.full_like(starts, np.nan)
    tiles = np.take(np.pad(starts, ((0, 0), (0, 1))), tile_order(shape, arrays[1]), axis=1)
    sums = starts[:, : 64 * shape.inputs].reshape(count, 64, -1).sum(axis=2, dtype=np.float64)
    setting = [ctypes.c_double(number) for number in (factor, 1 / factor, data.shift / data.scale)]
    given = pointers(starts, models, *arrays, tiles, sums, order, described)
    kernels.train_all(count, shape.shared_bytes, *given, *setting, batch, len(data.train_x), *pointers(losses))
    return models[rows], losses[rows] / [[job.order.size] for job in jobs]


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("kind", ["digits", "odd", "floats"])
def test_the_kernels_train_like_the_cpus(kind: str, tmp_path: Path) -> None:
    data = load_dataset("mnist")
    data = replace(data, train_x=data.train_x[:500], train_y=data.train_y[:500])
    if kind == "floats":  # other sizes, dense inputs
        x = np.random.default_rng(0).normal(size=(500, 70)).astype(np.float32)
        data = replace(
            data, train_x=x, test_x=x, test_y=data.train_y % 3, train_y=data.train_y % 3, classes=3, scale=2.0
        )
    if kind == "odd":  # an odd number of pixels, and samples of zeros: passes over nothing
        x = data.train_x[:, 7:14, 7:14].copy()
        x[np.arange(500) % 50 > 2] = 0
        data = replace(data, train_x=x, test_x=x, test_y=data.train_y)
    engine, rng = MlpEngine(data, batch_size=9 if kind == "floats" else 10), np.random.default_rng(4)
    jobs = [
        Job(engine.initial(rng), np.stack([rng.permutation(500)[:n] for _ in range(epochs)]), rate, rms=True)
        for epochs, n, rate in ((1, 43, 1.0), (2, 20, 2.0))
    ]
    models, losses = emulated(data, tmp_path, jobs, 9 if kind == "floats" else 10)
    expected = engine.update(jobs)
    for job, ours, theirs in zip(jobs, models, expected.models(), strict=True):
        rounding = 3e-7 * np.linalg.norm(job.start)  # of the weights, beside which these few steps are small
        assert np.linalg.norm(ours - theirs) < 3e-6 * np.linalg.norm(theirs - job.start) + rounding
    np.testing.assert_allclose(losses[:, 0], expected.losses, rtol=1e-5)
    np.testing.assert_allclose(np.sqrt(losses[:, 1]), expected.rms, rtol=1e-5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"order": np.array([[0, 5]])}, r"job 1 visits samples 0 to 5; give indices from 0 to 4"),
        ({"order": np.array([[0, -1]])}, r"job 1 visits samples -1 to 0; give indices from 0 to 4"),
        ({"order": np.array([[0.5]])}, r"job 1 has an order of shape \(1, 1\) and type float64"),
        ({"order": np.array([1])}, r"job 1 has an order of shape \(1,\) and type int64"),
        ({"lr_scale": 0.0}, r"job 1 has the learning-rate factor 0.0; give a number above 0"),
    ],
)
def test_jobs_that_are_not_sound_are_not_packed(changed: dict[str, Any], message: str) -> None:
    good = Job(np.zeros(3, np.float32), np.array([[0, 4]]))
    with pytest.raises(InputError, match=message):
        packed([good, replace(good, **changed)], np.zeros(2, np.int64), np.arange(2), 10, 0.01, 5, pin=False)


def test_what_cannot_be_trained_so_is_said() -> None:
    data = load_dataset("mnist")
    assert "PyTorch" in unsupported_reason(data, (64,), 10, "cuda")
    with pytest.raises(InputError, match=r"device is 'cuda', but PyTorch .*; use 'cpu', or the torch engine"):
        MlpCudaEngine(data)
    assert Shape(784, 10, True).parameters == 50890
    assert Shape(784, 10, True).shared_bytes < 232448  # of an H100 or H200


def test_where_memory_runs_out_fewer_train_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: the engine's own loop around a call that fails while it takes too many."""
    torch = pytest.importorskip("torch")
    engine = object.__new__(MlpCudaEngine)
    engine._most, engine._device, engine._shape = 1000, torch.device("cuda"), Shape(784, 10, True)
    tried, fits = list[int](), 20
    jobs = [Job(np.full(2, i, np.float32), np.zeros((1, 1), np.int64)) for i in range(50)]

    def update(jobs: list[Job]) -> Any:
        tried.append(len(jobs))
        if len(jobs) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        starts = np.stack([job.start for job in jobs])
        return HostUpdates(
            [job.start for job in jobs], starts + 1, starts[:, 0].astype(float), 2 * starts[:, 1].astype(float)
        )

    monkeypatch.setattr(engine, "_update", update)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    found, whole = engine.update(jobs), np.arange(50.0)
    assert tried == [50, 25, 12, 12, 12, 12, 2]
    np.testing.assert_array_equal(found.models(), np.stack([whole, whole], axis=1) + 1)
    np.testing.assert_array_equal(found.losses, whole)
    np.testing.assert_array_equal(found.rms, 2 * whole)
    np.testing.assert_allclose(found.norms(), np.sqrt(2))
    tried.clear()
    engine.update(jobs[:24])
    assert tried == [12, 12]  # it has learnt
    fits = 0
    with pytest.raises(InputError, match="one client does not fit into the memory of cuda: CUDA out of memory"):
        engine.update(jobs)


def test_rounded_uploads_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: all but the training, which the CPU does."""
    data = load_dataset("mnist")
    data = replace(data, train_x=data.train_x[:500], train_y=data.train_y[:500])
    cpu, engine = MlpEngine(data), object.__new__(MlpCudaEngine)
    engine._most, engine._shape = 1000, Shape(784, 10, True)
    engine._y = np.zeros(500)  # type: ignore[assignment]
    monkeypatch.setattr(engine, "_update", lambda jobs: cpu.update([replace(job, bits=32) for job in jobs]))
    start = engine.initial(np.random.default_rng(0))
    jobs = [Job(start, np.arange(50)[np.newaxis], key=(bits,), bits=bits) for bits in (2, 32, 8)]
    found, expected = engine.update(jobs), cpu.update(jobs)
    np.testing.assert_array_equal(found.models(), expected.models())
    np.testing.assert_allclose(found.sums(), expected.sums())
    with pytest.raises(InputError, match=r"job 1 uploads 1\.0 bits a weight"):
        engine.update([jobs[0], replace(jobs[0], bits=1)])

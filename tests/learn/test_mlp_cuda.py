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
from fedcell.learn.engine import Job
from fedcell.learn.mlp import MlpEngine
from harness import run

pytest.importorskip("torch")

from fedcell.learn.mlp_cuda import ROW, MlpCudaEngine, Shape, obstacle, tables

ENTRIES = """
extern "C" void lay_out_all(int blocks, const PIXEL* x, const int* order, double factor, int steps, float* table,
                            int* counts) {
    launch(blocks, THREADS, 64, [=] { lay_out(x, order, factor, steps, table, counts); });
}
extern "C" void train_all(int blocks, int bytes, float* models, const float* table, const int* counts, const int* order,
                          const int* labels, const float* sums, const float* rates, const int* lengths,
                          const float* sizes, double center, int steps, double* losses) {
    launch(blocks, THREADS, bytes, [=] {
        train(models, table, counts, order, labels, sums, rates, lengths, sizes, center, steps, losses);
    });
}
"""


def pointers(*arrays: Any) -> list[Any]:
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]


def emulated(data: Dataset, folder: Path, jobs: list[Job], batch: int) -> tuple[Any, Any]:
    """Models and losses by the kernels, as the engine calls them."""
    flat = np.ascontiguousarray(data.train_x.reshape(len(data.train_x), -1))
    shape = Shape(flat.shape[1], data.classes, flat.dtype == np.uint8)
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
    sums = (factor * flat.sum(axis=1, dtype=np.float64)).astype(np.float32)
    order, lengths, sizes = tables(jobs, batch)
    count, steps, _ = order.shape
    table = np.full((count * steps, shape.inputs, ROW), np.nan, np.float32)
    counts = np.full(count * steps, -1, np.int32)
    kernels.lay_out_all(count * steps, *pointers(flat, order), ctypes.c_double(factor), steps, *pointers(table, counts))
    models, losses = np.stack([job.start for job in jobs]), np.full((count, 2), np.nan)
    labels, rates = data.train_y.astype(np.int32), np.array([0.01 * job.rate for job in jobs], np.float32)
    inputs = pointers(models, table, counts, order, labels, sums, rates, lengths, sizes)
    center = ctypes.c_double(data.shift / data.scale)
    kernels.train_all(count, shape.shared_bytes, *inputs, center, steps, *pointers(losses))
    return models, losses / [[job.order.size] for job in jobs]


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("kind", ["digits", "floats"])
def test_the_kernels_train_like_the_cpus(kind: str, tmp_path: Path) -> None:
    data = load_dataset("mnist")
    data = replace(data, train_x=data.train_x[:500], train_y=data.train_y[:500])
    if kind == "floats":  # other sizes, dense inputs
        x = np.random.default_rng(0).normal(size=(500, 70)).astype(np.float32)
        data = replace(
            data, train_x=x, test_x=x, test_y=data.train_y % 3, train_y=data.train_y % 3, classes=3, scale=2.0
        )
    engine, rng = MlpEngine(data, batch_size=9 if kind == "floats" else 10), np.random.default_rng(4)
    jobs = [
        Job(engine.initial(rng), np.stack([rng.permutation(500)[:n] for _ in range(epochs)]), rate, rms=True)
        for epochs, n, rate in ((1, 43, 1.0), (2, 20, 2.0))
    ]
    models, losses = emulated(data, tmp_path, jobs, 9 if kind == "floats" else 10)
    expected = engine.update(jobs)
    for job, ours, theirs in zip(jobs, models, expected.models(), strict=True):
        assert np.linalg.norm(ours - theirs) < 1e-5 * np.linalg.norm(theirs - job.start)
    np.testing.assert_allclose(losses[:, 0], expected.losses, rtol=1e-5)
    np.testing.assert_allclose(np.sqrt(losses[:, 1]), expected.rms, rtol=1e-5)


def test_what_cannot_be_trained_so_is_said() -> None:
    data = load_dataset("mnist")
    assert "PyTorch" in obstacle(data, (64,), 10, "cuda")
    with pytest.raises(InputError, match=r"device is 'cuda', but PyTorch .*; use 'cpu', or the torch engine"):
        MlpCudaEngine(data)
    assert Shape(784, 10, True).parameters == 50890
    assert Shape(784, 10, True).shared_bytes < 232448  # of an H100 or H200


def test_where_memory_runs_out_fewer_train_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: the engine's own loop around a call that fails while it takes too many."""
    torch = pytest.importorskip("torch")
    engine = object.__new__(MlpCudaEngine)
    engine._at_once, engine._device = 132, torch.device("cuda")
    tried, fits = list[int](), 20

    def update(jobs: Any) -> Any:
        tried.append(engine._at_once)
        if engine._at_once > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return jobs

    monkeypatch.setattr(engine, "_update", update)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    assert engine.update(["job"]) == ["job"]  # type: ignore[list-item, comparison-overlap]
    assert tried == [132, 66, 33, 16]
    fits = 0
    with pytest.raises(InputError, match="one client does not fit into the memory of cuda: CUDA out of memory"):
        engine.update([])

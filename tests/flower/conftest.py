import logging
from collections.abc import Generator, Iterator
from typing import Any

import pytest

pytest.register_assert_rewrite("flower.runs")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what Flower's processes said."""
    report = yield
    if report.failed:
        values: dict[str, Any] = getattr(item, "funcargs", {})
        for value in values.values():
            if hasattr(value, "tails"):
                report.sections += [(f"the end of {name}.log", tail) for name, tail in value.tails().items()]
    return report


@pytest.fixture(autouse=True)
def _identity() -> Iterator[None]:
    """What a ServerApp's process has: the run that its messages belong to."""
    from flwr.supercore.task_identity import TaskIdentity

    kept = dict(vars(TaskIdentity))
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    yield
    for name in ("_run_id", "_node_id", "_task_id"):
        if name in kept:
            setattr(TaskIdentity, name, kept[name])


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What Flower's logger is told."""
    logging.getLogger("flwr").propagate = True
    caplog.set_level(logging.INFO, "flwr")
    return caplog

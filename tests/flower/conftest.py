from collections.abc import Generator
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

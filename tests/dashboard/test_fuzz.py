"""Requests made from the OpenAPI document, good and bad: no 5xx, and every answer is as the document says."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from dashboard.races import LONG, begin
from fedcell.runs.contest import Scenario, Tournament
from fedcell.runs.store import Store
from fedcell.runs.tournament import run_tournament
from fedcell.sim.loop import simulate
from fedcell.sim.spec import parse_spec
from harness import LIMIT_S, TINY, Served, serve

pytestmark = pytest.mark.processes
EXAMPLES = 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    spec = parse_spec(TINY | {"policy": "greedy"}, "a test")
    with Store(folder / "results.db") as store:
        store.put(spec, list(simulate(spec)))
        contest = Tournament([Scenario("one", "", 0.8, spec)], ["greedy", "all"], [0])
        run_tournament(contest, store, ThreadPoolExecutor(1))
    with serve(folder / "results.db", "--workers", "1") as served:
        id = begin(served, LONG)
        served.wait(id, "running")
        served.post(f"/api/races/{id}/pause")  # the races that are asked for wait behind it, and take no time
        yield served


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_every_answer_is_as_documented(served: Served, mode: str) -> None:
    """With requests that fit the document, and with such as do not."""
    import schemathesis  # here, so that the other workers are spared a second of imports
    from schemathesis.checks import not_a_server_error
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi import checks

    assert len(GenerationMode) == 2
    answers = [checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]
    document = schemathesis.openapi.from_url(f"{served.url}api/openapi.json")
    api: Any = document.exclude(path_regex="/events$")  # they never end; test_jobs reads them
    tried = 0
    for found in api.get_all_operations():
        operation = found.ok()
        strategy = operation.as_strategy(generation_mode=GenerationMode(mode))

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None, database=None)
        @given(case=strategy)
        def answers_as_documented(case: Any) -> None:
            case.call_and_validate(checks=[not_a_server_error, *answers], timeout=LIMIT_S)

        try:
            answers_as_documented()
        except Unsatisfiable:
            assert mode == "negative", operation.label  # nothing can be wrong with it
        tried += 1
    assert tried >= 23
    assert not served.process.ended

"""/api/plan: one round planned for a table of devices."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from fedcell.dashboard import plans
from fedcell.dashboard.events import left
from fedcell.dashboard.limits import body_documented
from fedcell.dashboard.schemas import ErrorAnswer, PlanAnswer, PlanAsk
from fedcell.dashboard.state import AppState

RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": PlanAnswer, "content": {"text/csv": {"schema": {"type": "string"}}}},
    **{status: {"model": ErrorAnswer} for status in (413, 415, 422)},
}


def router(state: AppState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["plan"])

    @routes.post("/plan", response_class=Response, responses=RESPONSES, openapi_extra=body_documented(PlanAsk))
    async def plan(request: Request) -> Response:
        """Plan one round with several policies; text/csv bodies are device tables."""
        body = await request.body()  # read in a thread: parsing megabytes would keep all others waiting
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        query = dict(request.query_params)
        planned = asyncio.ensure_future(state.plans.run(lambda: plans.answer(body, kind, query)))
        # A plan that nobody waits for any more gives its place to the next: whoever drags a slider drops many.
        leaving = asyncio.ensure_future(left(request.receive))
        try:
            await asyncio.wait((planned, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not planned.done():
                raise ClientDisconnect
            text, media_type = planned.result()
            return Response(text, media_type=media_type)
        finally:
            planned.cancel()
            leaving.cancel()

    return routes

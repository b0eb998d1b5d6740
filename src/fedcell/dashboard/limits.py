"""What one request, one race and all clients together may ask of the machine. /api/info tells them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """How long a client may keep the server waiting.

    Attributes:
        headers_s: for the whole header of a request, from its first byte or from the connection on.
        body_s: for its whole body.
        stuck_s: without reading any of what was sent to it.
        idle_s: between two requests.
        closing_s: for what is being answered when the server is told to stop.
        look_s: how often that is looked at.
    """

    headers_s: float = 10.0
    body_s: float = 60.0
    stuck_s: float = 60.0
    idle_s: int = 30
    closing_s: float = 0.3
    look_s: float = 1.0


UPLOAD_BYTES = 8 * 2**20
PLAN_DEVICES = 100_000
PLAN_OBJECTS = PLAN_DEVICES + 1000
"""Braces and brackets of a JSON body, counted before it is parsed: an empty object takes 20 times its text's memory."""
PLAN_COLUMNS = 1200
PLAN_PROFILE_NUMBERS = 2_000_000
PLAN_DETAIL = 200
PLAN_ROWS = 50
"""Of a table larger than PLAN_DETAIL, each plan lists so many devices; the CSV lists all."""
PLANS_AT_ONCE = 2
PLANS_WAITING = 16
READS_WAITING = 64
POLICY_LINES = 12
POLICY_CHARACTERS = 200
LAW_CHARACTERS = 100
BLOCKS = 100_000
DRAWN_LABELS = 10
RACE_BYTES = 64 * 2**10
RACE_RUNS = 700
RACE_DEVICES = 2000
RACE_ROUNDS = 5000
RACE_ALL_ROUNDS = 200_000
RACE_BUDGET_S = 1_000_000
RACE_HIDDEN = 512
RACE_EPOCHS = 20
RACE_SEED = 2**31 - 1
RUN_BYTES = 64 * 2**20
"""Of the plans of a run that is not yet stored."""
STOPPING_S = 0.5
"""When the server stops, the rounds being trained have so long to end; what is not done then is trained again."""
QUEUE = 20
RACES_KEPT = 50
NAME_CHARACTERS = 100
NOTE_CHARACTERS = 2000
STREAMS = 100
CONNECTIONS = 400
"""That were let in; each of the others, which have not shown a token yet, gives way to a newer one."""
STRANGERS = 100
BACKLOG = 64
UPLOADS_BYTES = 64 * 2**20
"""Of all bodies that are being received or worked on."""
KEYS = 64
EXPORT_SHARES = 2_000_000
ROUND_DEVICES = 2000
FIELD_SIZE = 200
LISTED_RUNS = 1000
MEANS = 20_000
SCENARIO_CHARACTERS = 500

"""What the API takes and answers, as models: they check requests and make the OpenAPI document.

Large answers are written without them, for speed; the fuzz test holds those answers to the models.
"""

from typing import Annotated, Any, Literal

import pydantic_core
from pydantic import BaseModel, ConfigDict, Field

from fedcell import defaults
from fedcell.dashboard import limits
from fedcell.dashboard.queue import RaceState
from fedcell.runs.records import Measure

Number = float | None
"""JSON has neither NaN nor infinity: both are null."""
RoundRow = list[Number]
PolicyLine = Annotated[str, Field(max_length=limits.POLICY_CHARACTERS)]


LawLine = Annotated[str, Field(max_length=limits.LAW_CHARACTERS)]


class Answer(BaseModel):
    """Something the server says."""


class Ask(BaseModel):
    """Something the client asks for."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ErrorAnswer(Answer):
    """Why a request was refused, in one sentence."""

    detail: str


class PolicySetting(Answer):
    """A setting of a policy."""

    name: str
    default: str | float | bool | None
    required: bool
    kind: Literal["number", "whole", "truth", "text"]


class LawSetting(PolicySetting):
    """A setting of a link law, with what a form needs: a label, a value to begin with, and how much 1 in it is."""

    label: str
    usual: float
    scale: float


class LawInfo(Answer):
    """A link law of the registry."""

    name: str
    label: str
    settings: list[LawSetting]


class PolicyInfo(Answer):
    """A policy of the registry."""

    name: str
    settings: list[PolicySetting]


class Style(Answer):
    """How a policy's line is drawn; dash as in matplotlib."""

    colour: str
    dash: str


class StoreInfo(Answer):
    """A results file."""

    name: str
    writable: bool


class PlanCell(Ask):
    """The radio of a plan; radius_m matters only where devices are drawn."""

    radius_m: float = defaults.RADIUS_M
    bandwidth_hz: float = defaults.BANDWIDTH_HZ
    model_bits: int = defaults.MODEL_BITS
    noise_dbm_per_mhz: float = Field(default=defaults.NOISE_DBM_PER_MHZ, ge=-1000.0, le=1000.0)
    path_loss_1km_db: float = defaults.PATH_LOSS_1KM_DB
    path_loss_exponent: float = defaults.PATH_LOSS_EXPONENT
    channel: str = Field(default="paper", max_length=limits.POLICY_CHARACTERS)
    rate: str = Field(default="shannon", max_length=limits.POLICY_CHARACTERS)


class FormField(Answer):
    """A field of a race that the page's form has, as the spec declares it."""

    path: str
    label: str
    unit: str
    scale: float
    """How many of the field's unit make one of ``unit``."""
    step: float | None
    kind: str
    """number, whole, text, truth or list."""
    choices: list[str]
    others: bool
    """Whether it may have other values than the choices, which are suggestions then."""
    least: float | None
    most: float | None
    required: bool
    default: str
    help: str
    topic: str
    """The title of the page's explanation of it; empty without one."""


class Info(Answer):
    """What this server is and allows."""

    version: str
    docs: str | None
    """Where the documentation is on the web, if the package says so."""
    stores: list[StoreInfo]
    paper: bool
    limits: dict[str, int]
    policies: list[str]
    all_policies: list[PolicyInfo]
    laws: list[LawInfo]
    colours: dict[str, Style]
    defaults: dict[str, Any]
    """A race where nothing else is asked for: the document of one of its runs."""
    seeds: int
    target: float
    plan_cell: PlanCell
    """The cell of a plan where nothing else is asked for."""
    choices: dict[str, list[str]]
    """Of settings of policies, by name."""
    fields: list[FormField]


class Draw(Ask):
    """Devices placed at random in the cell."""

    count: int = Field(default=defaults.DEVICES, ge=1, le=limits.PLAN_DEVICES)
    seed: int = Field(default=0, ge=0, le=limits.RACE_SEED)
    labels: int = Field(default=0, ge=0, le=limits.DRAWN_LABELS)
    """How many of ten labels each device has samples of, as profile columns; 0 for no profiles."""


class PlanAsk(Ask):
    """Plan one round: exactly one of devices_csv, devices and draw says for whom."""

    devices_csv: str | None = None
    devices: list[Annotated[dict[str, Any], Field(max_length=limits.PLAN_COLUMNS)]] | None = None
    draw: Draw | None = None
    cell: PlanCell = PlanCell()
    theta: float | None = None
    """Of the rounds model; unless it is given, that of the first policy which has one, else 0."""
    seed: int = Field(default=0, ge=0, le=limits.RACE_SEED)
    policies: list[PolicyLine] | None = Field(default=None, min_length=1, max_length=limits.POLICY_LINES)
    law: LawLine = "density"
    """How uploads share what carries them, such as ``blocks:count=15``."""
    epochs: float = 1.0
    """Local epochs that compute times are for: a whole number, or a fraction below 1."""
    format: Literal["json", "csv", "json-file"] = "json"
    """``csv`` and ``json-file``: the very text of `fedcell plan --csv` and `--json`."""


class PlannedDevice(Answer):
    """A scheduled device, as `fedcell plan --json` gives it; a law may add columns of what a device gets."""

    model_config = ConfigDict(extra="allow")

    device: str
    index: int
    share: float
    blocks: int | None = None
    """Whole resource blocks, where the band comes in them."""
    bandwidth_hz: Number = None
    """Where a band is shared."""
    bits_per_s: Number = None
    """Where the server's uplink is shared."""
    epochs: Number = None
    """Where the policy decides how long devices train."""
    bits: Number = None
    """Where it decides how many bits a weight they upload."""
    upload_s: float
    compute_s: float
    finish_s: float


class PlanDocument(Answer):
    """A plan, as `fedcell plan --json` gives it, with the number of its devices and its colour."""

    fedcell: str
    policy: str
    law: str
    shared: str
    """What a share is a share of; empty where each device has a dedicated link."""
    round_s: float
    theta: float
    objective_s: Number
    imbalance: Number
    imbalance_other: list[Number] | None
    """By device, the imbalance without it if it is scheduled, with it if not; null without profiles or for many."""
    bandwidth_hz: float
    devices: list[PlannedDevice]
    n: int
    colour: str
    dash: str


class TableDocument(Answer):
    """The devices as they were given; of a draw, as the CSV that would give the same plan."""

    columns: list[str]
    rows: list[list[str]]
    count: int
    notes: list[str]
    names: list[str] | None
    """Of the devices, with the next two; null for many devices."""
    upload_s: list[float] | None
    """With the entire band."""
    compute_s: list[float] | None


class CurveDocument(Answer):
    """The objective of the best set of each size."""

    n: list[int]
    objective_s: list[float]
    greedy_n: int
    greedy_objective_s: Number
    optimal_n: int
    optimal_objective_s: Number
    theta: float


class Compared(Answer):
    """A line of the comparison."""

    policy: str
    devices: int
    epochs: str | None
    """Such as ``0.05 to 1``; null unless a policy of the comparison decides it."""
    bits: str | None
    round_s: float
    per_device_s: Number
    relative: Number
    imbalance: Number
    colour: str


class PlanAnswer(Answer):
    """All plans, and what they are compared by."""

    table: TableDocument
    plans: list[PlanDocument]
    notes: list[str]
    curve: CurveDocument
    comparison: list[Compared]
    cut: str | None


class RaceAsk(Ask):
    """A race: fields of a spec that differ from the defaults, policies and the number of seeds."""

    spec: dict[str, Any] = {}
    policies: list[PolicyLine] | None = Field(default=None, min_length=1, max_length=limits.POLICY_LINES)
    seeds: int = Field(default=defaults.SEEDS, ge=1, le=limits.RACE_RUNS)
    target: float = Field(default=defaults.TARGET_ACCURACY, gt=0.0, le=1.0)


class RaceWords(Ask):
    """What the user calls a race, and a note on it; what is left out stays."""

    name: str | None = Field(default=None, max_length=limits.NAME_CHARACTERS)
    note: str | None = Field(default=None, max_length=limits.NOTE_CHARACTERS)


class StyledPolicy(Style):
    """A policy of a race."""

    line: str


class RaceRun(Answer):
    """How far one run of a race is."""

    key: str
    policy: str
    seed: int
    state: Literal["waiting", "running", "done", "failed"]
    reason: str
    rounds: int | None
    clock_s: Number
    accuracy: Number


class RaceCommand(Answer):
    """The command that runs the race again, and the file race.toml that it reads if options cannot say all of it."""

    command: str
    toml: str | None


class RaceRuns(Answer):
    """How many runs a race has, and how many of them another race or a tournament has too."""

    runs: int
    shared: int


class RaceDocument(Answer):
    """A race."""

    id: str
    name: str
    note: str
    state: RaceState
    reason: str
    created_unix_s: float
    words: str
    """What the race is of, in one line."""
    spec: dict[str, Any]
    policies: list[StyledPolicy]
    seeds: list[int]
    target: float
    runs: list[RaceRun]
    position: int | None
    elsewhere: bool


class RaceList(Answer):
    """All races, the newest first."""

    races: list[RaceDocument]


class MeanDocument(Answer):
    """A mean over seeds; mean - half to mean + half is its 95 % interval, null of fewer than 4 seeds.

    ``low``, ``high``: the interval cut to what is possible, where that is less.
    """

    mean: Number
    half: Number
    low: Number
    high: Number


class TimeDocument(Answer):
    """When the target was reached: the median over seeds, null for never, and the restricted mean.

    In the mean a seed that never reaches it counts with ``limit_s``; null while that is open.
    """

    median_s: Number
    mean_s: Number
    reached: int
    n: int


class EnergyDocument(Answer):
    """What it cost to reach the target: the median over seeds, null for never and for unknown; the restricted mean."""

    median_j: Number
    mean_j: Number
    reached: int
    n: int


class SeedCurve(Answer):
    """Accuracy against time, or against energy, of one seed."""

    clock_s: list[float] | None
    spent_j: list[float] | None
    accuracy: list[float]


class PolicyCurve(Style):
    """Accuracy against time, or energy, averaged over the seeds that got there; two or three are told one by one."""

    line: str
    clock_s: list[float] | None
    spent_j: list[float] | None
    mean: list[float]
    low: list[Number] | None
    high: list[Number] | None
    seeds: list[SeedCurve] | None
    seeds_done: int


class TableRow(Style):
    """What a race's tables say of one policy, over the seeds that have ended for all policies, or begun.

    ``seeds``: those that have a round, which all means are of; ``of_seeds``: all, with those that failed or whose
    budget allows no round. ``diverged``: of how many of these seeds training diverged; ``failed``: how many runs of the
    policy failed, in all.
    """

    policy: str
    seeds: int
    of_seeds: int
    best: MeanDocument
    last: MeanDocument
    curve_best: Number
    curve_last: Number
    time_to_target: TimeDocument
    energy_to_target: EnergyDocument
    devices: MeanDocument
    round_s: MeanDocument
    rounds: MeanDocument
    joules: MeanDocument
    epochs: MeanDocument
    bits: MeanDocument
    sent_bytes: MeanDocument
    """Of a whole run."""
    diverged: int
    failed: int


class SoonerDocument(Answer):
    """How many times sooner the leader reaches the target than this policy, by mean time, with a 95 % interval."""

    policy: str
    ratio: Number
    low: Number
    high: Number
    n: int
    significant: bool


class LeadDocument(Answer):
    """Who reaches the target first, in a sentence, and what it rests on, over the seeds that have ended for all.

    ``policy`` and ``other``: who leads whom; null where nobody leads, which the sentence explains.
    """

    text: str
    small: str
    significant: bool
    policy: str | None
    other: str | None
    over: list[SoonerDocument]


class Curves(Answer):
    """Curves, table, and what the comparisons show; so_far_s: when the table looks at unfinished runs.

    ``verdicts_on``: what the verdicts are of. ``limit_s``, ``limit_j``: what a seed that never reaches the target
    counts with in the means.
    """

    policies: list[PolicyCurve]
    table: list[TableRow]
    verdicts: list[str]
    verdicts_on: str
    target: float
    end_s: Number
    limit_s: Number
    limit_j: Number
    so_far_s: Number
    lead: LeadDocument | None


class RunDocument(Answer):
    """A run of a store, or of the race that computes."""

    key: str
    store: str | None
    policy: str
    seed: int
    status: Literal["done", "failed", "unfinished", "damaged", "running"]
    reason: str
    source: Literal["simulation", "flower", "testbed"]
    rounds: int
    best_accuracy: Number
    last_accuracy: Number
    finished_unix_s: Number
    duration_s: Number
    diverged: bool
    doubt: str
    """What version 0.2 had wrong of it, and so is not to be used; empty otherwise."""
    colour: str
    dash: str
    differs: dict[str, Any]


class RunList(Answer):
    """Runs of the results files."""

    runs: list[RunDocument]
    total: int
    policies: list[str]
    """All that the files have, whichever is chosen."""


class FieldMeans(Answer):
    """Mean accuracies of stored runs by the values of two fields; x and means are missing if they do not differ."""

    fields: list[str]
    """In which the runs differ, and policy."""
    runs: int
    across: str | None
    down: str | None
    x: list[Any] | None = None
    y: list[Any] | None = None
    styles: list[Style | None] | None = None
    means: list[list[Number]] | None = None
    counts: list[list[int]] | None = None


class RunAnswer(Answer):
    """One run and its rounds: the names of the columns, and a row of values for each round."""

    run: RunDocument
    spec: dict[str, Any]
    columns: list[str]
    rows: list[RoundRow]


class RoundDevice(Answer):
    """A device in one round: from share on null unless it is scheduled, the last three null unless measured.

    ``blocks``: whole resource blocks, null where the band does not come in them; a law may add such columns.
    ``start_s``: when a scheduled device has the model and begins to train, 0 unless there is a downlink. Of the
    answer's further columns it has those that are per device.
    """

    model_config = ConfigDict(extra="allow")

    index: int
    x_m: float
    y_m: float
    distance_m: float
    snr_db: Number
    spectral_efficiency: float
    upload_s: float
    compute_s: float
    scheduled: bool
    delivered: bool
    share: Number
    blocks: int | None
    bandwidth_hz: Number
    upload_with_share_s: Number
    start_s: Number
    finish_s: Number
    joules: Number
    predicted_finish_s: Number
    upload_began_s: Number
    measured_finish_s: Number


class AddedColumn(Answer):
    """A column of rounds that RoundAnswer does not list: the round has a value of this name, or each of its devices."""

    name: str
    unit: str
    text: str
    per_device: bool


class RoundAnswer(Answer):
    """One round of one run, with a value for each of the further columns that are not per device."""

    model_config = ConfigDict(extra="allow")

    round: int
    rounds: int
    clock_s: float
    round_s: float
    joules: Number
    accuracy: Number
    radius_m: float
    law: str
    blocks: int | None
    """How many whole units the law gives out, such as resource blocks; null where shares are any numbers."""
    shared: str
    """What a share is a share of; empty where each device has a dedicated link."""
    sharing: Literal["planned", "optimal", "equal"]
    round_s_planned: float
    round_s_optimal: float
    round_s_equal: float
    devices: list[RoundDevice]
    cut: str | None
    columns: list[AddedColumn]


class FieldAnswer(Answer):
    """Mean SNR over the cell, row by row of y; null outside the cell."""

    x_m: list[float]
    y_m: list[float]
    snr_db: list[list[Number]]


class TournamentDocument(Answer):
    """A tournament that a results file has, finished or not."""

    id: str
    store: str
    asked_unix_s: float
    scenarios: list[str]
    policies: list[str]
    seeds: list[int]
    runs: int
    ended: int
    damage: str


class TournamentList(Answer):
    """The tournaments of the results files, the newest first."""

    tournaments: list[TournamentDocument]


class RankedPolicy(StyledPolicy):
    """A policy of a ranking: its mean rank over all blocks, where it wins, and where it is not told from the best."""

    rank: float
    wins: int
    shares: int


class RankedScenario(Answer):
    """A scenario of a tournament, who is best in it (empty for nobody), and who cannot be told from that one."""

    name: str
    about: str
    target: float
    budget_s: float
    best: str
    tied: list[str]
    said: str


class RankedCell(Answer):
    """What a policy reached in a scenario, its mean rank there, and whether it wins.

    ``shares``: it does not differ significantly from the best; ``unknown``: too few seeds to tell, or no policy reaches
    the target.
    """

    text: str
    rank: float
    verdict: Literal["wins", "shares", "loses", "unknown"]


class RankingAnswer(Answer):
    """Policies ranked over all blocks, the best first: a block is one seed of one scenario.

    ``critical``: Nemenyi's critical difference of mean ranks. ``groups``: who do not differ significantly.
    ``said_of_others``: the test with scenarios as blocks. ``cells``: a row for each policy, in their order, of all
    scenarios.
    """

    id: str
    by: Measure
    blocks: int
    critical: float
    said: str
    said_of_others: str | None
    reading: str
    policies: list[RankedPolicy]
    groups: list[list[str]]
    scenarios: list[RankedScenario]
    what: str
    cells: list[list[RankedCell]]
    seeds: list[int]
    seeds_asked: int
    troubles: list[str]


class RankedRun(Answer):
    """A run behind a cell of a ranking."""

    key: str
    seed: int
    state: Literal["done", "failed", "missing"]


class RankedRuns(Answer):
    """The runs of one policy in one scenario, a seed each."""

    runs: list[RankedRun]


class PaperFigure(Answer):
    """A figure or table of the paper, reproduced."""

    name: str
    title: str
    files: list[str]


class PaperAnswer(Answer):
    """The reproduction that `fedcell reproduce` left."""

    figures: list[PaperFigure]
    page: str | None
    quick: bool
    """Whether any of it was made with --quick, whose results mean nothing."""


def as_json(document: Any) -> str:
    """As JSON; what is not finite becomes null. Pydantic's writer is six times as quick as the standard library's."""
    return pydantic_core.to_json(document, inf_nan_mode="null").decode()

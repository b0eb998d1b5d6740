"""A Flower strategy that wraps another: fedcell chooses who trains, the wrapped strategy does the rest."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedcell import defaults
from fedcell.check import require_number, require_whole
from fedcell.errors import InputError
from fedcell.flower.collect import POLL_S, collect
from fedcell.flower.folder import held
from fedcell.flower.inner import (
    LOG,
    ChosenNodes,
    arrays_of,
    changed_numbers,
    name_of,
    own_numbers,
    own_weights,
    personal,
    restore_arrays,
    restore_numbers,
    take_train_s,
    taking_all,
    weighing,
    weight_key,
)
from fedcell.flower.nodes import Nodes
from fedcell.flower.privacy import (
    require_resumable,
    require_round_size,
    require_sample_size,
    restore_spent,
    sample_size,
    skip_round,
    spent,
)
from fedcell.flower.radio import CellRadio, Device, Grant, Radio
from fedcell.flower.replies import evaluate_demands, faults, train_demands, unsound
from fedcell.flower.roster import Roster
from fedcell.flower.round import PlannedRound, PlayedRound, play
from fedcell.flower.state import (
    Run,
    ScheduledRound,
    load_arrays,
    load_run,
    load_spent,
    require_same_model,
    save,
    save_spent,
)
from fedcell.learn.profile import noise_of
from fedcell.rng import stream
from fedcell.schedule.bandwidth import Floats
from fedcell.schedule.policy import Policy
from fedcell.schedule.profiles import balanced_weights, profiles_of
from fedcell.schedule.registry import blaming, format_policy, parse_policy
from fedcell.sim.knowledge import Look
from fedcell.sim.spec import Spec
from fedcell.world import Cell

Averaging = Literal["strategy", "balanced"]
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class Scheduled(Strategy):
    """A Flower strategy that runs ``strategy`` on the nodes that ``policy`` chooses in each round.

    In each round the policy sees every node's upload time c_i (from its report, through the radio) and compute time t_i
    (first reported, then observed), and decides who trains with which share g_i of the band. The messages to the chosen
    nodes have ``fedcell-share`` (g_i), ``fedcell-finish-s`` (t_i + c_i / g_i) and ``fedcell-round`` (from 0) in their
    config. The wrapped strategy sees a federation of the chosen nodes only. Evaluation is left to it.

    Args:
        strategy: any strategy of ``flwr.serverapp.strategy``.
        policy: the scheduling policy: a `Policy`, or a string such as ``greedy:theta=0``.
        radio: the radio network, which knows the upload times and applies the shares; a `Cell` for nodes that report
            an SNR or a rate.
        seed: random seed of the policy; its draws depend on (seed, round) only.
        nodes: number of nodes to wait for before the first round.
        wait_s: how many seconds to wait for them.
        answer_s: how many seconds to wait in the first round for the nodes' reports; a node that answers later joins
            then.
        query_every: ask all nodes for a new report every this many rounds, for links that change; 0 asks each once.
        poll_s: seconds between two checks for replies; arrival times are no more precise than this.
        slack: the reply of a node that takes more than ``slack`` times its planned time is not used, and the node is
            remembered as slow.
        grace_s: additional wall-clock seconds for Flower's own overhead: its nodes look for work every 3 s, and start a
            process for it. Not applied to times that a radio measures.
        budget_s: time limit in seconds; a round that is planned to end later is not started.
        target_accuracy: training stops when ``metric`` reaches this value, a fraction between 0 and 1.
        metric: the metric to compare with the target: of the evaluation function, or of the clients if there is none.
        averaging: ``strategy``, as the wrapped strategy weights the models itself; or ``balanced``, weighted so that
            the round is most like the whole federation, by the profiles that the nodes report. Only for strategies
            that take a weighted mean: FedAvg and most of those derived from it.
        epsilon: that of the noise with which the nodes hid their profiles (see `profile_of`), or None.
        start_s: the clock at the start of a new run, in seconds: of a simulated cell, how long the reports took.
        state: a directory in which every round is saved; if it has an earlier run, that run is resumed.
        spec: the cell and the task as a spec, if there is one; saved with the state, for charts that show the cell.

    Attributes:
        rounds: one `ScheduledRound` for each round so far.

    Example:
        >>> from flwr.serverapp.strategy import FedAvg
        >>> from fedcell.flower import Scheduled
        >>> strategy = Scheduled(FedAvg(fraction_evaluate=0.0), "greedy:theta=0.94", nodes=10, budget_s=3600.0)
        >>> strategy.policy.theta, strategy.rounds
        (0.94, [])

        In a ServerApp, ``strategy.start(grid, initial_arrays, num_rounds=50)`` then trains.
    """

    def __init__(
        self,
        strategy: Strategy,
        policy: Policy | str,
        *,
        radio: Radio | Cell | None = None,
        seed: int = 0,
        nodes: int = 2,
        wait_s: float = 300.0,
        answer_s: float = 60.0,
        query_every: int = 0,
        poll_s: float = POLL_S,
        slack: float = defaults.SLACK,
        grace_s: float = 10.0,
        budget_s: float = math.inf,
        target_accuracy: float | None = None,
        metric: str = "accuracy",
        averaging: Averaging = "strategy",
        epsilon: float | None = None,
        start_s: float = 0.0,
        state: str | Path | None = None,
        spec: Spec | None = None,
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise InputError(
                f"strategy is a {type(strategy).__name__}; give one of flwr.serverapp.strategy, such as FedAvg()"
            )
        require_whole("seed", seed, least=0)
        require_whole("nodes", nodes, least=1)
        require_whole("query_every", query_every, least=0)
        require_number("slack", slack, least=1)
        seconds = {"wait_s": wait_s, "answer_s": answer_s, "grace_s": grace_s, "poll_s": poll_s, "start_s": start_s}
        for name, value in seconds.items():
            require_number(name, value, least=0)
        noise_of(epsilon, 1)  # checks it
        if averaging not in ("strategy", "balanced"):
            raise InputError(f"averaging is {averaging!r}; write 'strategy' or 'balanced'")
        if averaging == "balanced" and weight_key(strategy) is None:
            raise InputError(
                f"averaging is 'balanced', but {type(strategy).__name__} takes no mean that could be weighted; use "
                "FedAvg, FedProx, FedAvgM, FedAdagrad, FedAdam or FedYogi"
            )
        if not budget_s > 0:
            raise InputError(f"budget_s is {budget_s!r}; give a positive number of seconds")
        if target_accuracy is not None and not 0 < target_accuracy <= 1:
            raise InputError(f"target_accuracy is {target_accuracy!r}; give a fraction between 0 and 1")
        self.strategy = strategy
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        require_sample_size(strategy, self.policy, nodes)
        self.radio: Radio | Cell = Cell() if radio is None else radio
        self.seed, self.nodes, self.wait_s, self.query_every = seed, nodes, wait_s, query_every
        self.poll_s, self.slack, self.grace_s, self.budget_s = poll_s, slack, grace_s, budget_s
        self.target_accuracy, self.metric = target_accuracy, metric
        self.averaging, self.epsilon = averaging, epsilon
        self.state, self.spec = None if state is None else Path(state), spec
        self.rounds: list[ScheduledRound] = []
        # In simulated time waiting costs nothing, and leaving out a slow node would change the round.
        real_time = isinstance(self.radio, Cell) or self.radio.real_time
        self._nodes = Nodes(answer_s if real_time else max(answer_s, wait_s))
        self._roster = Roster.empty()
        self._warned: set[tuple[str, str]] = set()
        self._clock_s, self._began_s = start_s, 0.0
        self._planned: PlannedRound | None = None
        self._running = False

    def summary(self) -> None:
        """Log the policy and the seed, then the summary of the wrapped strategy."""
        LOG.info("\t├──> fedcell schedules: %s, seed %d", format_policy(self.policy), self.seed)
        self.strategy.summary()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Train like Flower's own ``start``, except for the choice of nodes, the deadlines, the budget and the target.

        Args:
            grid: Flower's grid.
            initial_arrays: the initial model; a resumed run starts from its saved model instead.
            num_rounds: limit on the number of rounds, including those of a resumed run.
            timeout: the longest wait for a reply in seconds, whatever the plan says.
            train_config: config for the chosen nodes.
            evaluate_config: config for the nodes that evaluate.
            evaluate_fn: evaluates the model on the server, as in Flower.

        Returns:
            Result: the model and the metrics of all rounds; ``rounds`` has what fedcell adds.
        """
        size = sum(len(array.data) for array in initial_arrays.values())
        with held(self.state, size):
            self._running = True
            try:
                return self._train(
                    grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
                )
            finally:
                self._running = False

    def _train(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int,
        timeout: float,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: EvaluateFn | None,
    ) -> Result:
        LOG.info("Starting Scheduled(%s):", type(self.strategy).__name__)
        self.summary()
        self._demands = train_demands(self.strategy, initial_arrays)
        self._settings = own_numbers(self.strategy)
        result = self._taken_up(Result(arrays=initial_arrays))
        self._nodes.wait_for(grid, self.nodes, self.wait_s)
        self._began_s = time.monotonic() - self._clock_s
        if evaluate_fn and not self.rounds:
            _note(result, 0, {"server": evaluate_fn(0, result.arrays)})
        while len(self.rounds) < num_rounds and not self._reached():
            number = len(self.rounds) + 1
            messages = list(self.configure_train(number, result.arrays, train_config or ConfigRecord(), grid))
            planned, radio = self._the_plan, self._radio(result.arrays)
            if self._clock_s + planned.plan.round_s > self.budget_s:
                LOG.info("fedcell: stopping: round %d would end after the budget of %g s", number, self.budget_s)
                break
            radio.grant(planned.grant)
            sent_s = time.monotonic()
            replies = collect(grid, messages, min(timeout, self._deadline_s(planned, radio)), self.poll_s)
            waited_s = time.monotonic() - sent_s
            timing = radio.measure(planned.grant) if messages else None
            played = play(planned, replies, timing, self.slack, self.grace_s, self._demands)
            round_s = self._advance(planned, played, waited_s, radio)
            new, train_metrics = self._average(number, planned, played)
            result.arrays = result.arrays if new is None else new
            self._roster = self._roster.after(planned.view, planned.plan, planned.look, played.taught)
            found = self._evaluate(number, result.arrays, grid, evaluate_config or ConfigRecord(), timeout, evaluate_fn)
            _note(result, number, {"train": train_metrics, **found})
            self._keep(number, planned, played, round_s, result)
        return result

    # --- one round -------------------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the nodes, and let the wrapped strategy create its messages for exactly those."""
        if not self._running:
            raise InputError(
                "Scheduled is inside another strategy, which skips its start(); write it outermost, such as "
                "Scheduled(DifferentialPrivacyServerSideFixedClipping(FedAvg(), ...), ...)"
            )
        ask_all = self.query_every > 0 and server_round > 1 and (server_round - 1) % self.query_every == 0
        nodes = self._nodes.meet(grid, ask_all=ask_all)
        give_up_s = time.monotonic() + self.wait_s
        least = sample_size(self.strategy) or 1
        while len(nodes) < least:
            if time.monotonic() > give_up_s:
                raise InputError(
                    f"{len(nodes) or 'no'} node has sent its report within {self.wait_s:g} s, and the strategy needs "
                    f"{least}; check their logs and run again"
                )
            self._nodes.wait_for(grid, least, self.wait_s)
            time.sleep(self.poll_s if nodes else 0.0)
            nodes = self._nodes.meet(grid)
        devices = [self._nodes.devices[node] for node in nodes]
        planned = self._planned = self._decide(server_round - 1, nodes, devices, self._radio(arrays))
        plan, chosen = planned.plan, planned.chosen
        if not chosen:
            return []
        with taking_all(self.strategy, len(chosen)):
            made = list(self.strategy.configure_train(server_round, arrays, config, ChosenNodes(grid, chosen)))
        by_node = {node: i for i, node in enumerate(chosen)}
        odd = set(by_node) ^ {message.metadata.dst_node_id for message in made}
        if odd:
            LOG.warning("fedcell: %s did not use all nodes that the policy chose", type(self.strategy).__name__)
            made = [message for message in made if message.metadata.dst_node_id in by_node]
            self._planned = planned.only({message.metadata.dst_node_id for message in made})
        require_round_size(self.strategy, len(made))
        return [
            personal(
                message,
                {
                    "fedcell-share": float(plan.shares[i]),
                    "fedcell-finish-s": float(planned.grant.finish_s[i]),
                    "fedcell-round": server_round - 1,
                },
            )
            for message in made
            for i in [by_node[message.metadata.dst_node_id]]
        ]

    def _decide(self, round_index: int, nodes: list[int], devices: list[Device], radio: Radio) -> PlannedRound:
        self._roster = self._roster.meeting([device.name for device in devices]).hearing(devices)
        order = np.argsort(self._roster.indices(devices))  # by device, whatever the order of Flower's random ids
        nodes, devices = [nodes[i] for i in order], [devices[i] for i in order]
        look = radio.look(devices, round_index, self._clock_s)
        self._say_unknown(devices, look)
        self._say_profiles(devices)
        view = self._roster.view(devices, look, round_index, self.epsilon)
        fits = np.flatnonzero(view.upload_s + view.compute_s <= self.budget_s)
        if radio.real_time and 0 < fits.size < len(devices):
            for name in sorted({device.name for device in devices} - {devices[i].name for i in fits}):
                self._warn_once("budget", name, f"device {name} would need longer than budget_s and is not scheduled")
            nodes, devices = [nodes[i] for i in fits], [devices[i] for i in fits]
            look = Look(look.upload_s[fits], look.compute_s[fits])
            view = self._roster.view(devices, look, round_index, self.epsilon)
        with blaming(format_policy(self.policy)):
            plan = self.policy.decide(view, stream(self.seed, "policy", round_index))
        finish_s = plan.finish_s(view.upload_s, view.compute_s) if plan.devices.size else np.empty(0)
        return PlannedRound(nodes, look, view, Grant(round_index, devices, plan, finish_s))

    def _say_unknown(self, devices: list[Device], look: Look) -> None:
        for what, names in self._roster.unknown(devices, look).items():
            new = [name for name in names if (what, name) not in self._warned]
            self._warned |= {(what, name) for name in new}
            if new and len(names) == len(devices):
                LOG.warning("fedcell: no device reports its %s; assuming they are all equal until observed", what)
            elif new:
                LOG.warning(
                    "fedcell: nothing is known about the %s of %s; assuming the median of the others until observed",
                    *(what, ", ".join(new)),
                )

    def _say_profiles(self, devices: list[Device]) -> None:
        usual = self._roster.knowledge.profiles.shape[1]
        for name in self._roster.odd_profiles(devices):
            self._warn_once("profile", name, f"the profile of device {name} is not used: most have {usual} numbers")
        if usual == 0 and (self.averaging == "balanced" or self.policy.uses_profiles):
            self._warn_once(
                "profile",
                "",
                "no device reports a profile, so all are scheduled and averaged as if their data were alike; give "
                "Report(profile=profile_of(model, batches)) in the ClientApp",
            )

    def _warn_once(self, what: str, name: str, message: str) -> None:
        if (what, name) not in self._warned:
            self._warned.add((what, name))
            LOG.warning("fedcell: %s", message)

    def _average(
        self, number: int, planned: PlannedRound, played: PlayedRound
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let the wrapped strategy aggregate the replies, and remember how much of each device is in the mean."""
        if not played.kept or len(played.kept) < (sample_size(self.strategy) or 1):
            skip_round(self.strategy, number)
            if played.kept:
                LOG.warning(
                    "fedcell: round %d is not averaged: %d models are too few for its noise", number, len(played.kept)
                )
            return None, None
        view, delivered = planned.view, planned.plan.devices[played.delivered]
        balanced = None
        if self.averaging == "balanced":
            balanced = balanced_weights(profiles_of(view), delivered)
        weights = own_weights(self.strategy, played.kept) if balanced is None else balanced
        with weighing(self.strategy, played.kept, balanced):
            new, metrics = self.aggregate_train(number, played.kept)
        if self.state is not None:
            save_spent(self.state, spent(self.strategy))
        if new is not None and (fault := unsound(new, self._demands)):
            LOG.warning("fedcell: the model of round %d is not used: %s", number, fault)
            return None, metrics
        if new is not None:
            self._roster = self._roster.averaged(np.asarray(view.ids)[delivered], weights)
        return new, metrics

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the replies with the wrapped strategy."""
        replies = list(replies)
        for reply in replies:
            take_train_s(reply)  # a strategy may reject a record that it does not know
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's own."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The strategy's own."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _evaluate(
        self,
        number: int,
        arrays: ArrayRecord,
        grid: Grid,
        config: ConfigRecord,
        timeout: float,
        evaluate_fn: EvaluateFn | None,
    ) -> dict[str, MetricRecord | None]:
        messages = list(self.configure_evaluate(number, arrays, config, grid))
        replies = collect(grid, messages, timeout, self.poll_s) if messages else {}
        names = {node: self._nodes.devices[node].name if node in self._nodes.devices else "" for node in replies}
        bad = faults({node: reply for node, (reply, _) in replies.items()}, evaluate_demands(self.strategy))
        for node, fault in bad.items():
            LOG.warning("fedcell: the evaluation of device %s is not used: %s", names[node] or node, fault)
        # In the order of the devices, not of arrival: the last bit of the mean must not depend on it.
        order = sorted(replies.keys() - bad.keys(), key=lambda node: (names[node], node))
        evaluated = self.aggregate_evaluate(number, [replies[node][0] for node in order])
        return {"evaluate": evaluated, "server": evaluate_fn(number, arrays) if evaluate_fn else None}

    # --- around the rounds -----------------------------------------------------------------------------------------

    @property
    def _the_plan(self) -> PlannedRound:
        assert self._planned is not None  # configure_train made it
        return self._planned

    def _radio(self, arrays: ArrayRecord) -> Radio:
        """Return the radio; for a Cell, one whose uploads have the size of the model."""
        if isinstance(self.radio, Cell):
            bits = 8 * sum(len(array.data) for array in arrays.values())
            self.radio = CellRadio(replace(self.radio, model_bits=max(1, bits)))
        return self.radio

    def _deadline_s(self, planned: PlannedRound, radio: Radio) -> float:
        """Return how long to wait for replies; the plan sets it only if the radio's times are wall-clock times."""
        if not radio.real_time or planned.grant.finish_s.size == 0:
            return math.inf
        return self.slack * float(planned.grant.finish_s.max()) + self.grace_s

    def _advance(self, planned: PlannedRound, played: PlayedRound, waited_s: float, radio: Radio) -> float:
        """Move the clock to the round's end; return how long the round took."""
        if planned.plan.devices.size == 0:
            round_s = planned.plan.round_s
            if radio.real_time:
                time.sleep(min(max(round_s, 1.0), 60.0))  # a node may join, or a link improve
        elif played.measured and (played.delivered.all() or not radio.real_time):
            round_s = float(np.nanmax(played.timing.finish_s))
        else:
            round_s = waited_s
        self._clock_s = time.monotonic() - self._began_s if radio.real_time else self._clock_s + round_s
        return round_s

    def _reached(self) -> bool:
        if self.target_accuracy is None or not self.rounds:
            return False
        value = self.rounds[-1].metric(self.metric)
        if value >= self.target_accuracy:
            LOG.info("fedcell: stopping: %s is %.4g, the target is %.4g", self.metric, value, self.target_accuracy)
        return value >= self.target_accuracy

    def _keep(self, number: int, planned: PlannedRound, played: PlayedRound, round_s: float, result: Result) -> None:
        """Record the round, log how it went, and save the state."""
        plan, ids = planned.plan, np.asarray(planned.view.ids)[planned.plan.devices]
        done = ScheduledRound(
            round=number,
            clock_s=self._clock_s,
            round_s=round_s,
            planned_s=plan.round_s,
            devices=ids.tolist(),
            names=[device.name for device in planned.devices],
            shares=plan.shares.tolist(),
            planned_finish_s=planned.grant.finish_s.tolist(),
            began_s=_or_none(played.timing.began_s),
            finish_s=_or_none(played.timing.finish_s),
            delivered=ids[played.delivered].tolist(),
            late=ids[played.late].tolist(),
            metrics=_metrics(result, number),
        )
        self.rounds.append(done)
        missing = [name for name, came in zip(done.names, played.delivered, strict=True) if not came]
        LOG.info(
            "fedcell: round %d: %d of %d devices, planned %.4g s, took %.4g s, clock %.6g s%s",
            *(number, len(ids), len(planned.nodes), plan.round_s, round_s, self._clock_s),
            f"; missing: {', '.join(missing)}" if missing else "",
        )
        if self.state is not None:
            model = {name: array.numpy() for name, array in result.arrays.items()}
            save(self.state, self._run(), self._roster, model, arrays_of(self.strategy))

    def _run(self) -> Run:
        names = list(self._roster.names)
        line, inner = format_policy(self.policy), name_of(self.strategy)
        numbers = changed_numbers(self.strategy, self._settings)
        return Run(line, self.seed, inner, self.rounds, names, None, self.spec, self.averaging, numbers)

    def _taken_up(self, result: Result) -> Result:
        """Return the result so far of the run in the state directory, if there is one, and restore what it knew."""
        if self.state is None:
            return result
        already = load_spent(self.state)
        if not (self.state / "state.json").exists():
            if already:  # of a server that was killed in its first round
                restore_spent(self.strategy, already)
            save_spent(self.state, spent(self.strategy))
            return result
        run, own = load_run(self.state), self._run()
        for what, theirs, ours in zip(
            ("policy", "seed", "strategy", "averaging"),
            (run.policy, run.seed, run.strategy, run.averaging),
            (own.policy, own.seed, own.strategy, own.averaging),
            strict=True,
        ):
            if theirs != ours:
                raise InputError(
                    f"{self.state} has a run whose {what} is {theirs}, not {ours}; give another directory or remove it"
                )
        self._roster, model, inner = load_arrays(self.state, run)
        require_same_model(self.state, model, self._demands.model or {})
        require_resumable(self.strategy)
        restore_arrays(self.strategy, inner)
        restore_numbers(self.strategy, run.numbers)
        restore_spent(self.strategy, already)
        self.rounds, self._clock_s = run.rounds, run.rounds[-1].clock_s
        for done in run.rounds:
            _note(result, done.round, {source: MetricRecord(values) for source, values in done.metrics.items()})
        result.arrays = ArrayRecord({name: Array(array) for name, array in model.items()})
        LOG.info("fedcell: resuming after round %d, %.6g s, from %s", run.rounds[-1].round, self._clock_s, self.state)
        return result


def _note(result: Result, number: int, metrics: Mapping[str, MetricRecord | None]) -> None:
    for source, values in metrics.items():
        if values is not None:
            _by_source(result)[source][number] = values


def _by_source(result: Result) -> dict[str, dict[int, MetricRecord]]:
    return {
        "train": result.train_metrics_clientapp,
        "evaluate": result.evaluate_metrics_clientapp,
        "server": result.evaluate_metrics_serverapp,
    }


def _metrics(result: Result, number: int) -> dict[str, dict[str, Any]]:
    return {source: dict(found[number]) for source, found in _by_source(result).items() if number in found}


def _or_none(values: Floats) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]

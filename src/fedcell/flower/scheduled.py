"""A Flower strategy that wraps another: fedcell chooses who trains, the wrapped strategy does the rest."""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from typing_extensions import override

from fedcell import defaults
from fedcell.errors import InputError, did_you_mean, require_number, require_whole
from fedcell.flower.client import arrays_of
from fedcell.flower.compat import LOG, calling_strategy, log_start
from fedcell.flower.messages import POLL_S, Later, Messenger, collect
from fedcell.flower.nodes import Nodes, Roster
from fedcell.flower.planner import AnyRadio, Planner
from fedcell.flower.privacy import (
    refuse_question,
    refuse_rounding,
    require_round_size,
    require_sample_size,
    sample_size,
    skip_round,
)
from fedcell.flower.radio import radio_of
from fedcell.flower.record import (
    ScheduledRound,
    explain_no_update,
    log_answers,
    log_metrics,
    log_plan,
    log_result,
    log_round,
    make_record,
    metrics_of,
    store_metrics,
)
from fedcell.flower.replies import (
    ReplyRequirements,
    enough_usable,
    evaluate_requirements,
    faults,
    forget_update,
    invalid_reason,
    train_requirements,
)
from fedcell.flower.round import (
    Arrivals,
    Connected,
    PlannedRound,
    asked_in,
    configs,
    loss_messages,
    name_of_node,
    observe,
    read_answers,
    send_messages,
)
from fedcell.flower.state import Run, StateDirectory, locked_directory
from fedcell.flower.wrapped import (
    chosen_nodes,
    evaluating,
    messages_for,
    name_of,
    overridden,
    own_weights,
    refuse_own_start,
    take_trained,
    weight_key,
    weights_overridden,
    with_node_config,
)
from fedcell.learn.profile import noise_of
from fedcell.protocol import SIGNALS, Collect, Collected, Observed, Outcome, Send, uses_signal
from fedcell.schedule.laws import Law, parse_law
from fedcell.schedule.plan import Question, Timing
from fedcell.schedule.policy import Policy
from fedcell.schedule.registry import format_policy, parse_policy
from fedcell.sim.spec import Spec
from fedcell.types import Bools, Floats, Indices
from fedcell.world import Cell

Averaging = Literal["strategy", "balanced"]
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
OnRound = Callable[[ScheduledRound, ArrayRecord], None]
GIVE_UP_AFTER = 10
"""So many rounds in a row in which nobody brings a model end a run."""


class Scheduled(Strategy):
    """A Flower strategy that runs ``strategy`` on the nodes that ``policy`` chooses in each round.

    In each round the policy sees every node's upload time c_i (from its report, through the radio) and compute time t_i
    (first reported, then observed), and decides who trains with which share g_i of the band. The messages to the chosen
    nodes have ``fedcell-share`` (g_i), ``fedcell-finish-s`` (t_i + c_i / g_i, or as the law has it), ``fedcell-round``
    (from 0) and, under the law blocks, ``fedcell-blocks`` (a whole number) in their config; if the policy decides them,
    also ``fedcell-epochs`` and ``fedcell-bits``: see `epochs_of` and `compressed`. The wrapped strategy sees a
    federation of the chosen nodes only. Evaluation is left to it. A policy that asks before it decides has its question
    sent first; see `answer_loss` and `upload_when_asked`.

    Args:
        strategy: any strategy of ``flwr.serverapp.strategy``.
        policy: the scheduling policy: a `Policy`, or a string such as ``greedy:theta=0``.
        radio: the radio network, which knows the upload times and applies the shares: a `Cell` for nodes that report an
            SNR or a rate; ``dedicated`` for nodes that share no link; or your own `Radio`. By default ``dedicated``
            unless a node reports its SNR, rate or upload time.
        law: how uploads share what carries them: a law such as ``fedcell.Blocks(15)``, or a string such as
            ``blocks:count=15``, ``power``, ``dedicated`` or ``ingress:bits_per_s=1e7``. By default the paper's for a
            `Cell`, and dedicated lines without one. Your own `Radio` says its law in `Links`.
        seed: random seed of the policy; its draws depend on (seed, round) only.
        nodes: number of nodes to wait for before the first round; a resumed run does not wait for them again.
        wait_s: how many seconds to wait for them.
        answer_s: how many seconds to wait in the first round for the nodes' reports; a node that answers later joins
            then.
        query_every: ask all nodes for a new report every this many rounds, for links that change; 0 asks each once.
        poll_s: seconds between two checks for replies; arrival times are no more precise than this.
        slack: the reply of a node that takes more than ``slack`` times its planned time is not used. A node whose link
            or speed is still unknown is late after ten times the median of when the others came, once half of them
            have. A reply that never comes is a failure, not a time. In simulated time and in Flower's simulation engine
            there are no deadlines.
        grace_s: additional wall-clock seconds for Flower's own overhead: its nodes look for work every 3 s, and start a
            process for it. Not applied to times that a radio measures.
        budget_s: time limit in seconds; a round that is planned to end later is not started.
        target_accuracy: training stops when ``metric`` reaches this value, a fraction between 0 and 1.
        metric: the metric to compare with the target: of the evaluation function, or of the clients if there is none.
        loss_metric: the metric that has a client's training loss, for policies that go by losses; with ``_rms`` after
            it, that of the root mean square of its samples' losses.
        averaging: ``strategy``, as the wrapped strategy weights the models itself; or ``balanced``, weighted so that
            the round is most like the whole federation, by the profiles that the nodes report. Only for strategies
            that take a weighted mean: FedAvg and most of those derived from it.
        epsilon: that of the noise with which the nodes hid their profiles (see `profile_of`), or None.
        explore: let the estimates of nodes that were not scheduled for a while become optimistic, so that one that was
            slow once, or got better, is tried again.
        on_round: called after each round with its `ScheduledRound` and the model: for checkpoints and trackers.
        epochs: how often nodes go through their samples where the policy does not decide it; by default as the spec
            says, or once.
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
        radio: AnyRadio = None,
        law: Law | str | None = None,
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
        loss_metric: str = "train_loss",
        averaging: Averaging = "strategy",
        epsilon: float | None = None,
        explore: bool = True,
        on_round: OnRound | None = None,
        epochs: float | None = None,
        start_s: float = 0.0,
        state: str | Path | None = None,
        spec: Spec | None = None,
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise InputError(
                f"strategy is {strategy!r:.60}; give an object of flwr.serverapp.strategy, such as FedAvg() (the older "
                "flwr.server.strategy is not supported)"
            )
        require_whole("seed", seed, least=0)
        require_whole("nodes", nodes, least=1)
        require_whole("query_every", query_every, least=0)
        require_number("slack", slack, least=1)
        seconds = {"wait_s": wait_s, "answer_s": answer_s, "grace_s": grace_s, "poll_s": poll_s, "start_s": start_s}
        for name, value in seconds.items():
            require_number(name, value, least=0)
        if epochs is not None:
            require_number("epochs", epochs, above=0)
        noise_of(epsilon, 1)  # checks it
        if averaging not in ("strategy", "balanced"):
            raise InputError(f"averaging is {averaging!r}; write 'strategy' or 'balanced'")
        if averaging == "balanced" and weight_key(strategy) is None:
            raise InputError(
                f"averaging is 'balanced', but {type(strategy).__name__} takes no mean that could be weighted; use "
                "FedAvg, FedProx, FedAvgM, FedAdagrad, FedAdam or FedYogi"
            )
        if not _is_number(budget_s) or not budget_s > 0:
            raise InputError(f"budget_s is {budget_s!r}; give a positive number of seconds")
        if target_accuracy is not None and (not _is_number(target_accuracy) or not 0 < target_accuracy <= 1):
            raise InputError(f"target_accuracy is {target_accuracy!r}; give a fraction between 0 and 1")
        a_radio = radio is None or radio == "dedicated" or isinstance(radio, Cell) or hasattr(radio, "look")
        if not a_radio or isinstance(radio, type):
            raise InputError(f"radio is {radio!r}; give a Cell, a Radio or 'dedicated'")
        law = _checked_law(law, radio)
        if not isinstance(policy, Policy | str):
            raise InputError(f"policy is {policy!r}; give a policy such as fedcell.Optimal(), or a string")
        if state is not None and (not isinstance(state, str | Path) or not str(state)):
            raise InputError(f"state is {state!r}; give the path of a directory")
        if not isinstance(metric, str) or not isinstance(loss_metric, str) or not isinstance(explore, bool):
            raise InputError(
                f"metric is {metric!r}, loss_metric is {loss_metric!r} and explore is {explore!r}; give two names, and "
                "True or False"
            )
        if on_round is not None and not callable(on_round):
            raise InputError(f"on_round is {on_round!r}; give a function of a ScheduledRound and an ArrayRecord")
        refuse_own_start(strategy)
        self.strategy = strategy
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        require_sample_size(strategy, self.policy, nodes)
        self.seed, self.nodes, self.wait_s, self.query_every = seed, nodes, wait_s, query_every
        self.poll_s, self.slack, self.grace_s, self.budget_s = poll_s, slack, grace_s, budget_s
        self.target_accuracy, self.metric, self.loss_metric = target_accuracy, metric, loss_metric
        self.averaging, self.on_round = averaging, on_round
        self.state, self.spec = None if state is None else Path(state).expanduser().absolute(), spec
        # In simulated time waiting costs nothing, and leaving out a slow node would change the round.
        real_time = radio is None or isinstance(radio, Cell | str) or radio.real_time
        self._planner = Planner(
            self.policy,
            seed,
            radio,
            Nodes(answer_s if real_time else max(answer_s, wait_s)),
            explore=explore,
            epsilon=epsilon,
            profiles_wanted=averaging == "balanced" or self.policy.uses_profiles,
            least=sample_size(strategy) or 1,
            law=law,
            epochs=epochs if epochs is not None or spec is None else spec.task.epochs,
        )
        self._start_s, self._timeout_s = start_s, math.inf
        self._under_way: _UnderWay | None = None
        self._metric_said = False
        self._demands: ReplyRequirements | None = None
        self._saving = StateDirectory(self.state, strategy)
        self._begin()

    def _begin(self) -> None:
        """Forget an earlier start: each one is a run of its own, or resumes the one in the state directory."""
        self.rounds: list[ScheduledRound] = []
        self._clock_s = self._start_s
        self._began_s: float | None = None
        self._resumed_after = 0
        self._later = Later()
        self._planner.roster = Roster.empty()

    @override
    def summary(self) -> None:
        """Log the policy, the seed and the settings that are overridden, then the wrapped strategy's own summary."""
        LOG.info("\t├──> fedcell schedules: %s, seed %d", format_policy(self.policy), self.seed)
        if self.state is not None:
            LOG.info("\t├──> fedcell saves every round in %s", self.state)
        if self.policy.server_momentum:
            LOG.info("\t├──> fedcell: the policy's momentum is not used: the step is the strategy's, such as FedAvgM's")
        for setting in overridden(self.strategy):
            LOG.info("\t├──> fedcell: %s is not used: the policy chooses who trains", setting)
        self.strategy.summary()

    @override
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
            num_rounds: how many rounds to train, including those of a resumed run. A round in which nodes were asked
                and none brought a model does not count.
            timeout: the longest wait for a reply in seconds, whatever the plan says.
            train_config: config for the chosen nodes; one object throughout the run, as in Flower.
            evaluate_config: config for the nodes that evaluate.
            evaluate_fn: evaluates the model on the server, as in Flower.

        Returns:
            Result: the model and the metrics of all rounds; ``rounds`` has what fedcell adds.

        Raises:
            InputError: if no model of any node could ever be used.
        """
        require_whole("num_rounds", num_rounds, least=0)
        require_number("timeout", timeout, above=0)
        if not isinstance(initial_arrays, ArrayRecord):
            raise InputError(f"initial_arrays is a {type(initial_arrays).__name__}; give an ArrayRecord")
        self._begin()
        size = sum(len(array.data) for array in initial_arrays.values())
        with locked_directory(self.state, size), closing(self._later):
            return self._start(
                grid,
                initial_arrays,
                num_rounds,
                timeout,
                ConfigRecord() if train_config is None else train_config,
                ConfigRecord() if evaluate_config is None else evaluate_config,
                evaluate_fn,
            )

    def _start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int,
        timeout: float,
        train_config: ConfigRecord,
        evaluate_config: ConfigRecord,
        evaluate_fn: EvaluateFn | None,
    ) -> Result:
        started_s = time.monotonic()
        LOG.info("Starting Scheduled(%s) strategy:", type(self.strategy).__name__)
        log_start(num_rounds, initial_arrays, train_config, evaluate_config)
        self.summary()
        LOG.info("")
        self._demands = train_requirements(self.strategy, initial_arrays)
        if fault := invalid_reason(initial_arrays, self._demands):
            raise InputError(f"initial_arrays cannot be trained: {fault}; give another model")
        result = self._resumed(Result(arrays=initial_arrays), self._demands)
        if not self._ends(num_rounds):  # a resumed run goes on with those that are there
            self._planner.nodes.wait_for(grid, self._planner.least if self.rounds else self.nodes, self.wait_s)
        if evaluate_fn and not self.rounds:
            found = _metrics_from(evaluate_fn(0, result.arrays))
            LOG.info("Initial global evaluation results: %s", found)
            store_metrics(result, 0, {"server": found})
        while not self._ends(num_rounds):
            if not self._train(grid, result, num_rounds, timeout, train_config):
                break
            self._evaluate(grid, result, timeout, evaluate_config, evaluate_fn)
            self._keep(result)
        log_result(result, self.rounds, time.monotonic() - started_s)
        self._refuse_untrained(num_rounds)
        return result

    def _ends(self, num_rounds: int) -> bool:
        """Whether the run is over before another round; logs why, if it is not for the number of rounds."""
        if len(self.rounds) - self._empty_rounds() >= num_rounds or self._reached():
            return True
        late = self.rounds[self._resumed_after :][-GIVE_UP_AFTER:]
        if len(late) == GIVE_UP_AFTER and all(done.empty for done in late):
            LOG.error("fedcell: stopping: no node has brought a model in the last %d rounds", GIVE_UP_AFTER)
            return True
        return False

    def _empty_rounds(self) -> int:
        return sum(done.empty for done in self.rounds)

    def _refuse_untrained(self, num_rounds: int) -> None:
        if num_rounds > 0 and not any(done.delivered for done in self.rounds):
            why = explain_no_update(self.rounds, format_policy(self.policy), self.budget_s)
            raise InputError(f"no model was trained: {why}")

    # --- one round -------------------------------------------------------------------------------------------------

    def _train(self, grid: Grid, result: Result, num_rounds: int, timeout: float, config: ConfigRecord) -> bool:
        """Play a round up to its new model; False if it would end after the budget."""
        number = len(self.rounds) + 1
        if self._began_s is not None and self._planner.resolved_radio.real_time:  # evaluation took its time, too
            self._clock_s = time.monotonic() - self._began_s
        LOG.info("")
        LOG.info("[ROUND %s/%s]", number, num_rounds + self._empty_rounds())
        self._timeout_s = timeout
        self._learn_later()
        there = self._connected(number, result.arrays, grid)
        here = self._under_way = _UnderWay(number, grid, result, config, there)
        coroutine, played = self._planner.round_coroutine(there), None
        request = next(coroutine)
        while played is None:
            answer = self._carry_out(request, here) if isinstance(request, Send) else self._collect(request, here)
            if answer is None:
                return False
            try:
                request = coroutine.send(answer)
            except StopIteration as end:
                played = end.value
        self._planner.learn(there, played)
        planned, timing = here.planned(played.send), here.timing
        outcome = replace(played.outcome, delivered=here.arrived)
        done = make_record(number, self._clock_s, here.round_s, planned, timing, outcome, used=here.used)
        self.rounds.append(done)
        log_round(done)
        log_metrics(here.metrics)
        store_metrics(result, number, {"train": here.metrics})
        return True

    def _connected(self, number: int, arrays: ArrayRecord, grid: Grid) -> Connected:
        """What is known of the nodes that are there."""
        ask_all = self.query_every > 0 and number > 1 and (number - 1) % self.query_every == 0
        nodes = self._planner.discover_nodes(grid, ask_all=ask_all, wait_s=self.wait_s)
        return self._planner.see(nodes, arrays, number - 1, self._clock_s, self.budget_s - self._clock_s)

    def _carry_out(self, send: Send, here: "_UnderWay") -> Observed | None:
        """Send the messages of a plan, or of a question, and wait; None if the round would end after the budget."""
        planned = here.planned(send)
        if send.question is not None:
            return self._ask(planned, send.question, here)
        messages = list(self.configure_train(here.number, here.result.arrays, here.config, here.grid))
        kept = planned.only({message.metadata.dst_node_id for message in messages})
        if not self._begins(kept):
            return None
        assert self._demands is not None  # start made them
        demands, needed = self._demands, self.policy.needed(len(messages))
        starts = {one.metadata.dst_node_id: arrays_of(one) or here.result.arrays for one in messages}
        self._start_clock()
        came = self._messenger(here.grid).send(
            kept,
            messages,
            began_s=here.began_s,
            enough=lambda replies: needed < len(messages) and enough_usable(replies, demands, needed, starts),
        )
        self._planner.record_sizes(kept, came.replies)
        observed, here.usable, why = observe(kept, came, lambda replies: faults(replies, demands, starts))
        for node, fault in why.items():
            LOG.warning("fedcell: the reply of device %s is not used: %s", name_of_node(kept, node), fault)
        here.timing, here.came = observed.timing, came
        return replace(observed, kept=kept.among(planned))

    def _ask(self, planned: PlannedRound, question: Question, here: "_UnderWay") -> Observed:
        """Ask, and wait for the answers."""
        refuse_question(self.strategy, self.policy)
        self._start_clock()
        arrays, config, number = here.result.arrays, here.config, here.number
        if question.about == "loss":
            made = loss_messages(planned.chosen, arrays, config, question)
        else:
            made = messages_for(self.strategy, number, arrays, config, here.grid, planned.chosen)
        messages = asked_in(number - 1, made, question)
        kept = planned.only({message.metadata.dst_node_id for message in messages})
        came = self._messenger(here.grid).send(kept, messages)
        here.began_s = came.began_s
        observed, here.answers, here.no_answer = read_answers(kept, came, question.about)
        return replace(observed, kept=kept.among(planned))

    def _begins(self, planned: PlannedRound) -> bool:
        """Whether the round can end within the budget; logs who was chosen."""
        log_plan(planned)
        if self._clock_s + planned.plan.round_s <= self.budget_s:
            return True
        number = len(self.rounds) + 1
        LOG.info("fedcell: stopping: round %d would end after the budget of %g s", number, self.budget_s)
        return False

    def _collect(self, request: Collect, here: "_UnderWay") -> Floats | Collected | None:
        """The answers to a question; or what came with the models, once the wrapped strategy has averaged them."""
        send, outcome = request.send, request.outcome
        if send.question is not None:
            answers = here.answers[outcome.delivered]
            log_answers(send.question, here.there, int(np.isfinite(answers).sum()), outcome.round_s, here.no_answer)
            return answers
        planned = here.planned(send)
        if not planned.chosen:
            if not self._begins(planned):
                return None
            self._start_clock()
        measured = here.came is not None and here.came.measured is not None
        if measured or send.answers is not None or math.isfinite(outcome.cut_s):
            self._later.forget_round()  # what comes later of it tells nothing new
        here.arrived = outcome.delivered & np.array([node in here.usable for node in planned.chosen], dtype=bool)
        used = {n: here.usable[n] for n, came in zip(planned.chosen, here.arrived, strict=True) if came}
        signals = self._planner.signals(planned, used, here.result.arrays, self.loss_metric)
        here.round_s = self._advance(planned, outcome, here)
        delivered = planned.plan.devices[here.arrived]
        new, averaged = self._average(delivered, list(used.values()), here)
        here.result.arrays = here.result.arrays if new is None else new
        return Collected(self._clock_s, delivered, signals, averaged, rests=True)

    def _learn_later(self) -> None:
        """Learn how slow devices are whose replies came after their round."""
        for planned, reply, took_s in self._later.taken():
            if reply.has_content():
                self._planner.record_sizes(planned, {reply.metadata.src_node_id: (reply, took_s)})
                self._planner.learn_later(planned, reply, took_s, self._clock_s)

    @override
    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the nodes, and let the wrapped strategy create its messages for exactly those."""
        if (outer := calling_strategy()) not in (None, self):
            raise InputError(
                f"Scheduled is inside {type(outer).__name__}, which would skip its deadlines, budget and state; write "
                "it outermost: Scheduled(DifferentialPrivacyServerSideFixedClipping(FedAvg(), ...), ...)"
            )
        here = self._under_way
        if here is None:
            raise InputError("configure_train is called by start, which chooses the nodes; call start")
        planned = here.planned()
        trained = planned.answers is not None and planned.answers.trained
        make = partial(messages_for, self.strategy, server_round, arrays, config, grid)
        made = list(send_messages(planned.chosen) if trained else make(planned.chosen))
        planned = planned.only({message.metadata.dst_node_id for message in made})
        require_round_size(self.strategy, len(made))
        refuse_rounding(self.strategy, planned.plan.bits)
        wants_sums = any(uses_signal(self.policy, one) for one in SIGNALS if one.flag == "uses_sums")
        config_of = dict(zip(planned.chosen, configs(planned, self.seed, wants_sums=wants_sums), strict=True))
        return [with_node_config(message, config_of[message.metadata.dst_node_id]) for message in made]

    def _messenger(self, grid: Grid) -> Messenger:
        radio, left_s = self._planner.resolved_radio, self.budget_s - self._clock_s
        return Messenger(grid, radio, self.slack, self.grace_s, self._timeout_s, self.poll_s, left_s, self._later)

    def _start_clock(self) -> None:
        if self._began_s is None:  # waiting for nodes and their reports, or for Ray, is no training
            self._began_s = time.monotonic() - self._clock_s

    def _average(
        self, delivered: Indices, kept: list[Message], here: "_UnderWay"
    ) -> tuple[ArrayRecord | None, tuple[Indices, Floats | None] | None]:
        """Let the wrapped strategy aggregate the replies.

        Returns:
            The new model, and whose models are in it with which weights; None if there is none.
        """
        if len(kept) < (sample_size(self.strategy) or 1):
            skip_round(self.strategy, here.number)
            if kept:
                LOG.warning(
                    "fedcell: round %d is not aggregated: %d models are too few for the noise of differential privacy",
                    here.number,
                    len(kept),
                )
            return None, None
        balanced = self._planner.balanced(here.there, delivered) if self.averaging == "balanced" else None
        weights = own_weights(self.strategy, kept) if balanced is None else balanced
        with weights_overridden(self.strategy, kept, balanced):
            new, here.metrics = self.aggregate_train(here.number, kept)
        self._saving.save_privacy()
        assert self._demands is not None  # start made them
        if new is not None and (fault := invalid_reason(new, self._demands)):
            LOG.warning("fedcell: the model of round %d is not used: %s", here.number, fault)
            return None, None
        here.used = new is not None
        return new, None if new is None else (np.asarray(here.there.inputs.view.ids)[delivered], weights)

    @override
    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the replies with the wrapped strategy."""
        replies = list(replies)
        for reply in replies:
            take_trained(reply)  # a strategy may reject a record that it does not know
            forget_update(reply)
        return self.strategy.aggregate_train(server_round, replies)

    @override
    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    @override
    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _evaluate(
        self, grid: Grid, result: Result, timeout: float, config: ConfigRecord, evaluate_fn: EvaluateFn | None
    ) -> None:
        number, devices = len(self.rounds), self._planner.nodes.devices
        awake = self._planner.eligible_nodes(list(grid.get_node_ids()), number)
        with evaluating(self.strategy, len(awake)):
            messages = list(self.configure_evaluate(number, result.arrays, config, chosen_nodes(grid, awake)))
        left_s = max(self.budget_s - self._clock_s, self.grace_s)
        replies = collect(grid, messages, min(timeout, left_s), self.poll_s) if messages else {}
        names = {node: devices[node].name if node in devices else str(node) for node in replies}
        bad = faults({node: reply for node, (reply, _) in replies.items()}, evaluate_requirements(self.strategy))
        for node, fault in bad.items():
            LOG.warning("fedcell: the evaluation of device %s is not used: %s", names[node], fault)
        # In the order of the devices, not of arrival: the last bit of the mean must not depend on it.
        order = sorted(replies.keys() - bad.keys(), key=lambda node: (names[node], node))
        evaluated = self.aggregate_evaluate(number, [replies[node][0] for node in order])
        log_metrics(evaluated)
        found = None
        if evaluate_fn:
            LOG.info("Global evaluation")
            found = _metrics_from(evaluate_fn(number, result.arrays))
            log_metrics(found, clients=False)
        store_metrics(result, number, {"evaluate": evaluated, "server": found})

    # --- around the rounds -----------------------------------------------------------------------------------------

    def _advance(self, planned: PlannedRound, outcome: Outcome, here: "_UnderWay") -> float:
        """Move the clock to the round's end; return how long the round took."""
        radio, came, round_s = self._planner.resolved_radio, here.came, outcome.round_s
        if came is None:
            if radio.real_time:  # a node may join, or a link improve
                time.sleep(min(max(round_s if planned.answers is None else 0.0, 1.0), 60.0))
        elif came.waited_s is not None:
            all_measured = came.measured is not None and bool(outcome.delivered.all())
            round_s = float(np.nanmax(here.timing.finish_s)) if all_measured else came.waited_s
        assert self._began_s is not None  # set when the round was sent
        self._clock_s = time.monotonic() - self._began_s if radio.real_time else self._clock_s + round_s
        return round_s

    def _reached(self) -> bool:
        if self.target_accuracy is None or not self.rounds:
            return False
        last = self.rounds[-1]
        value = last.metric(self.metric)
        others = {name for source in ("server", "evaluate") for name in last.metrics.get(source, {})}
        if math.isnan(value) and self.metric not in others and not self._metric_said:
            self._metric_said = True
            LOG.warning(
                "fedcell: there is no metric %r to compare with the target, so training goes on to its last round; %s",
                self.metric,
                did_you_mean(self.metric, others) if others else "give evaluate_fn, or let clients evaluate",
            )
        if value >= self.target_accuracy:
            LOG.info("fedcell: stopping: %s is %.4g, the target is %.4g", self.metric, value, self.target_accuracy)
        return value >= self.target_accuracy

    def _keep(self, result: Result) -> None:
        """Complete the round's record with its metrics, save the state, and tell ``on_round``."""
        done = self.rounds[-1] = replace(self.rounds[-1], metrics=metrics_of(result, len(self.rounds)))
        run = replace(self._run(), initial=metrics_of(result, 0))
        self._saving.save_round(run, self._planner.roster, result.arrays)
        if self.on_round is not None:
            self.on_round(done, result.arrays)

    def _run(self) -> Run:
        names = list(self._planner.roster.names)
        line, inner = format_policy(self.policy), name_of(self.strategy)
        return Run(line, self.seed, inner, self.rounds, names, None, self.spec, self.averaging)

    def _resumed(self, result: Result, demands: ReplyRequirements) -> Result:
        """Return the result so far of the run in the state directory, if there is one, and go on from there."""
        saved = self._saving.resume(self._run(), demands.model or {})
        if saved is None:
            return result
        self._planner.roster, result.arrays, self.rounds = saved.roster, saved.arrays, saved.run.rounds
        self._clock_s, self._resumed_after = self.rounds[-1].clock_s, len(self.rounds)
        for number, metrics in [(0, saved.run.initial), *((done.round, done.metrics) for done in self.rounds)]:
            store_metrics(result, number, {source: MetricRecord(values) for source, values in metrics.items()})
        LOG.info("fedcell: resuming after round %d, %.6g s, from %s", self._resumed_after, self._clock_s, self.state)
        return result


@dataclass(eq=False)
class _UnderWay:
    """The round under way.

    Attributes:
        number: of the round, from 1.
        grid: Flower's.
        result: the run's, with the model with which the round began, until it has a new one.
        config: of training.
        there: the nodes, and what is known of them.
        began_s: its start by the monotonic clock, if a question came before.
        answers: (n,) answers to the question, and why there are none.
        came: the replies; None if nobody was sent anything.
        timing: when the devices started to upload and finished.
        usable: by node, the replies that can be used.
        arrived: (n,) booleans: the devices of the plan whose models are used.
        round_s: how long it took.
        metrics: of the wrapped strategy.
        used: whether the models that came were used.
    """

    number: int
    grid: Grid
    result: Result
    config: ConfigRecord
    there: Connected
    began_s: float | None = None
    answers: Floats = field(default_factory=lambda: np.empty(0))
    no_answer: dict[str, list[str]] = field(default_factory=dict)
    came: Arrivals | None = None
    timing: Timing = field(default_factory=lambda: Timing(np.empty(0), np.empty(0)))
    usable: dict[int, Message] = field(default_factory=dict)
    arrived: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    round_s: float = 0.0
    metrics: MetricRecord | None = None
    used: bool = False
    _send: Send | None = None

    def planned(self, send: Send | None = None) -> PlannedRound:
        """What is carried out now in terms of nodes, or what was the last time."""
        self._send = self._send if send is None else send
        assert self._send is not None
        return PlannedRound.of(self._send, self.there)


def _checked_law(law: object, radio: AnyRadio) -> Law | None:
    if law is None:
        return None
    found = parse_law(law) if isinstance(law, str) else law
    if not isinstance(found, Law):
        raise InputError(f"law is {law!r:.60}; give a law such as fedcell.Blocks(15), or a string")
    if radio is not None and not isinstance(radio, Cell | str):
        raise InputError(
            f"law is {found.line!r}, but {type(radio).__name__} has its own; give the law there, such as "
            "CellRadio(cell, law=Blocks(15))"
        )
    radio_of(radio, found, 1)  # refuses what does not go together
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _metrics_from(found: object) -> MetricRecord | None:
    """What an evaluation function returned, if it is what Flower's returns."""
    if found is None or isinstance(found, MetricRecord):
        return found
    raise InputError(f"evaluate_fn returned a {type(found).__name__}; return a MetricRecord, or None")

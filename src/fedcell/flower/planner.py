"""Who trains in the next round: the connected devices, what is known of them, and the policy's decision."""

import math
import time
from collections.abc import Generator, Mapping
from dataclasses import fields, replace
from math import ceil
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedcell.errors import InputError
from fedcell.flower.compat import LOG, in_simulation
from fedcell.flower.messages import POLL_S
from fedcell.flower.nodes import Nodes, Roster, bounded
from fedcell.flower.radio import Device, Radio, radio_of, reports_band
from fedcell.flower.record import listed
from fedcell.flower.replies import Replies, reports_of, sends_whole
from fedcell.flower.round import Connected, PlannedRound, by_server_clock, name_of_node
from fedcell.flower.wrapped import take_trained
from fedcell.protocol import Collect, RoundInputs, RoundResult, Send, play_round
from fedcell.quantisation import WEIGHT_BITS
from fedcell.rng import stream
from fedcell.schedule.laws import Law
from fedcell.schedule.plan import Links
from fedcell.schedule.policy import Policy, cap_k
from fedcell.schedule.profiles import balanced_weights, standardise
from fedcell.schedule.registry import format_policy
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats, Indices
from fedcell.world import Cell

AnyRadio = Radio | Cell | Literal["dedicated"] | None
"""What `Scheduled` takes for a radio; None leaves it to the nodes' reports."""

_CANNOT = {
    "epochs": "always train as long as they do, so the policy does not decide that; let their ClientApp train as long "
    "as fedcell.flower.epochs_of(message, ...) says, and report any_epochs=True",
    "bits": "send whole models, so the policy does not decide the size of uploads; give their ClientApp the mod "
    "fedcell.flower.compressed",
}
ALIKE = 3.0
"""Training times of nodes that take turns at one machine's processors say nothing below this factor; nor does a single
time above it, see `Estimates.pooled`."""


class Planner:
    """Meets nodes, plans rounds, and learns from them.

    Attributes:
        policy: who trains.
        seed: of the policy's random draws.
        radio: a radio; what is not yet one becomes one when the first devices are known.
        nodes: which node is which device.
        roster: the devices met, and what is known of them.
        explore: whether estimates of devices that were not seen for a while become optimistic.
        epsilon: of the noise in profiles, or None.
        profiles_wanted: whether profiles are used at all.
        least: how many devices a round needs.
        law: the link law of a radio that is not yet one; None for its own.
        epochs: how often a device goes through its samples when it trains; None for what the radio says.
    """

    def __init__(
        self,
        policy: Policy,
        seed: int,
        radio: AnyRadio,
        nodes: Nodes,
        *,
        explore: bool,
        epsilon: float | None,
        profiles_wanted: bool,
        least: int,
        law: Law | None = None,
        epochs: float | None = None,
    ) -> None:
        self.policy, self.seed, self.radio, self.nodes, self.law = policy, seed, radio, nodes, law
        self.explore, self.epsilon, self.profiles_wanted, self.least = explore, epsilon, profiles_wanted, least
        self.roster, self.epochs = Roster.empty(), epochs
        self._in_turn = False  # whether the nodes take turns at one machine's processors
        self._whole: set[str] = set()  # devices that send whole models whatever they are told
        self._warned: set[tuple[str, str]] = set()

    def discover_nodes(self, grid: Grid, *, ask_all: bool, wait_s: float) -> list[int]:
        """Return the nodes that have reported; wait until there are enough of them."""
        self._in_turn = in_simulation(grid)
        nodes = self.nodes.discover_nodes(grid, ask_all=ask_all)
        give_up_s = time.monotonic() + wait_s
        while len(nodes) < self.least:
            if time.monotonic() > give_up_s:
                raise InputError(
                    f"a round needs {self.least} or more nodes, but {len(nodes) or 'none'} sent a report within "
                    f"{wait_s:g} s; check their logs and run again"
                )
            self.nodes.wait_for(grid, self.least, wait_s)
            time.sleep(POLL_S)
            nodes = self.nodes.discover_nodes(grid)
        return nodes

    def see(self, nodes: list[int], arrays: ArrayRecord, round_index: int, clock_s: float, left_s: float) -> Connected:
        """Return what is known of the nodes before a round.

        Args:
            nodes: ids of the nodes that have reported.
            arrays: the model that they will send back.
            round_index: the round, from 0.
            clock_s: seconds from the start of the run.
            left_s: seconds left of the budget.
        """
        self.roster = self.roster.with_devices([self.nodes.devices[n].name for n in nodes])
        self.roster = self.roster.with_profiles([self.nodes.devices[n] for n in nodes])
        nodes = self.eligible_nodes(nodes, round_index)
        devices = [self.nodes.devices[node] for node in nodes]
        radio = self._resolved(devices, arrays)
        links = self._links(devices, arrays, round_index, clock_s)
        view = self._view(devices, links, round_index, clock_s, left_s)
        alone_s = view.law.upload_s(
            view.upload_s, np.ones(len(view))
        )  # with the entire band, or the entire uplink of the server
        fits = alone_s + view.compute_s <= left_s
        if radio.real_time and fits.any() and not fits.all():
            for name in [device.name for device, fit in zip(devices, fits, strict=True) if not fit]:
                self._warn_once("budget", name, f"device {name} would need longer than the budget")
            nodes = [node for node, fit in zip(nodes, fits, strict=True) if fit]
            devices = [self.nodes.devices[node] for node in nodes]
            links = self._links(devices, arrays, round_index, clock_s)
            view = self._view(devices, links, round_index, clock_s, left_s)
        known = self._known(devices, links)
        self._say_profiles(devices)
        samples = np.array([device.report.samples or math.nan for device in devices])
        return Connected(nodes, devices, RoundInputs(view, links, samples), known)

    def round_coroutine(self, there: Connected) -> Generator[Send | Collect, Any, RoundResult]:
        """The round with these nodes; see protocol/round.py."""
        policy = self._feasible(self._for_devices(len(there.nodes)), there)
        rng = stream(self.seed, "policy", there.inputs.view.round_index)
        return play_round(there.inputs, policy, self.roster.knowledge, rng, name=format_policy(policy))

    def _links(self, devices: list[Device], arrays: ArrayRecord, round_index: int, clock_s: float) -> Links:
        """What the radio knows of these devices, for the task's training and the model's size."""
        links = self.resolved_radio.look(devices, round_index, clock_s)
        epochs = links.epochs if self.epochs is None else self.epochs
        weights = self.model_bits(arrays) / WEIGHT_BITS if links.weights is None else links.weights
        return replace(links, epochs=epochs, weights=weights, tensors=len(arrays))

    def _for_devices(self, count: int) -> Policy:
        """The policy, with no more devices than there are, or than the noise of differential privacy is for."""
        policy = cap_k(self.policy, count)
        if policy is not self.policy:
            wanted = getattr(self.policy, "k", 0)
            self._warn_once("k", str(count), f"the policy wants {wanted} devices, but only {count} can be scheduled")
        if self.least > 1:
            most = self.least if policy.max_devices is None else min(self.least, policy.max_devices)
            policy = replace(policy, max_devices=most)
        return policy

    def _feasible(self, policy: Policy, there: Connected) -> Policy:
        """The policy, without the decisions that not all devices can carry out, as far as it has a setting for them."""
        whole = [one.name for one in there.devices if not one.report.any_bits or one.name in self._whole]
        fixed = [one.name for one in there.devices if not one.report.any_epochs]
        for setting, method, names, value in (
            ("epochs", "local_epochs", fixed, there.inputs.view.epochs),
            ("bits", "upload_bits", whole, float(WEIGHT_BITS)),
        ):
            decides = getattr(type(policy), method) is not getattr(Policy, method)
            if names and decides and getattr(policy, setting, None) != value:
                who = f"{len(names)} of {len(there.devices)} devices ({listed(names)})"
                self._warn_once(setting, "", f"{who} {_CANNOT[setting]}")
                if setting in {one.name for one in fields(policy)}:
                    policy = replace(policy, **{setting: value})  # type: ignore[arg-type]
        return policy

    def record_sizes(self, planned: PlannedRound, replies: Replies) -> None:
        """Remember which devices sent whole models although they were told to send fewer bits a weight."""
        if planned.plan.bits is not None:
            for node, device, bits in zip(planned.chosen, planned.devices, planned.plan.bits, strict=True):
                if bits < WEIGHT_BITS and node in replies and sends_whole(replies[node][0]):
                    self._whole.add(device.name)
                    self._warn_once("bits", "", f"device {device.name} {_CANNOT['bits']}")

    def _view(self, devices: list[Device], links: Links, round_index: int, clock_s: float, left_s: float) -> RoundView:
        return self.roster.view(
            devices,
            links,
            round_index,
            clock_s=clock_s,
            left_s=left_s,
            explore=self.explore,
            epsilon=self.epsilon,
            policy=self.policy,
            alike=ALIKE if self._in_turn and self.resolved_radio.real_time else 1.0,
        )

    def eligible_nodes(self, nodes: list[int], round_index: int) -> list[int]:
        """Return the known nodes by device, whatever their random ids, without those that rest after failures."""
        known, met = self.nodes.devices, set(self.roster.names)
        nodes = [node for node in nodes if node in known and known[node].name in met]
        devices = [known[node] for node in nodes]
        if not devices:
            return []
        wanted = max(self.least, ceil(self.policy.overcommit * getattr(self.policy, "k", 1)))
        rests = self.roster.resting(devices, round_index, min(wanted, len(devices)))
        order = np.argsort(self.roster.indices(devices))
        return [nodes[i] for i in order if not rests[i]]

    def learn(self, there: Connected, played: RoundResult) -> None:
        """Remember what a round showed, and say who rests after it."""
        self.roster = replace(self.roster, knowledge=played.knowledge)
        ids, round_index = np.asarray(there.inputs.view.ids), there.inputs.view.round_index
        failed = ids[played.send.plan.devices[played.outcome.failed]]
        if played.send.answers is not None:
            failed = np.concatenate((failed, ids[played.send.answers.failed]))
        after = played.knowledge
        for i in failed:
            rounds = int(after.retry_round[i]) - round_index - 1
            if rounds > 0:
                LOG.warning(
                    "fedcell: device %s has failed %d times in a row and is left out for %d round%s",
                    *(self.roster.names[i], after.failures[i], rounds, "s" if rounds > 1 else ""),
                )

    def learn_later(self, planned: PlannedRound, reply: Message, took_s: float, clock_s: float) -> None:
        """Remember how long a device took whose reply came after its round: it is alive, and this is its time."""
        node = reply.metadata.src_node_id
        timing = by_server_clock(planned, {node: (reply, took_s)}, {node: take_trained(reply)})
        there, known = np.asarray(planned.view.ids)[planned.plan.devices], self.roster.knowledge
        known = known.with_times(planned.view, planned.plan, planned.links, timing, clock_s)
        alive = there[[planned.chosen.index(node)]]
        known = known.with_failures(alive, np.zeros(1, np.bool_), planned.view.round_index)
        self.roster = replace(self.roster, knowledge=known)

    def balanced(self, there: Connected, devices: Indices) -> Floats | None:
        """(n,) the weights that make these devices' models most like all that are there; None if nothing is known."""
        profiles = bounded(self.roster.knowledge.profiles)[self.roster.indices(there.devices)]
        if profiles.shape[1] == 0:
            return balanced_weights(None, devices)
        return balanced_weights(standardise(profiles, there.inputs.view.profile_noise), devices)

    def signals(
        self, planned: PlannedRound, kept: Mapping[int, Message], model: ArrayRecord, loss_metric: str
    ) -> dict[str, Floats]:
        """Return what devices reported with the models that are used, by column; nothing in a reply is trusted."""
        reports, odd = reports_of(list(kept.values()), model, self.policy, loss_metric)
        for place, what in odd:
            name = name_of_node(planned, list(kept)[place])
            self._warn_once("told", name, f"device {name} reports nothing that can be used: {what}")
        return reports

    def _resolved(self, devices: list[Device], arrays: ArrayRecord) -> Radio:
        """The radio, which is chosen now if it was left to the reports; uploads have the size of the model."""
        if self.radio is None and self.law is None and not any(reports_band(device.report) for device in devices):
            LOG.info(
                "fedcell: no device reports an SNR, a rate or an upload time: assuming that each has a dedicated link "
                '(radio="dedicated")'
            )
            self.radio = "dedicated"
        if self.radio is None or isinstance(self.radio, Cell | str):
            self.radio = radio_of(self.radio, self.law, _bits(arrays))
        return self.radio

    def model_bits(self, arrays: ArrayRecord) -> float:
        """The size of one upload: as the radio has it, or that of the arrays."""
        bits = getattr(self.resolved_radio, "model_bits", None)
        return float(bits or _bits(arrays))

    @property
    def resolved_radio(self) -> Radio:
        """The radio of the last planned round."""
        assert self.radio is not None
        assert not isinstance(self.radio, Cell | str)
        return self.radio

    def _known(self, devices: list[Device], links: Links) -> Bools:
        """(M,) whether link and speed of each device are known; says what is assumed where they are not."""
        known = np.ones(len(devices), dtype=np.bool_)
        for what, unknown in self.roster.unknown(devices, links).items():
            known &= ~unknown
            names = [device.name for device, out in zip(devices, unknown, strict=True) if out]
            new = [name for name in names if (what, name) not in self._warned]
            self._warned |= {(what, name) for name in new}
            if new and len(names) == len(devices):
                LOG.info("fedcell: no device reports its %s; assuming they are all equal until observed", what)
            elif new:
                LOG.info(
                    "fedcell: nothing is known about the %s of %s; assuming the median of the others until observed",
                    *(what, ", ".join(new)),
                )
        return known

    def _say_profiles(self, devices: list[Device]) -> None:
        usual = self.roster.knowledge.profiles.shape[1]
        for name in self.roster.odd_profiles(devices):
            self._warn_once("profile", name, f"the profile of device {name} is not used: most have {usual} numbers")
        if usual == 0 and self.profiles_wanted:
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


def _bits(arrays: ArrayRecord) -> int:
    return max(1, 8 * sum(len(array.data) for array in arrays.values()))

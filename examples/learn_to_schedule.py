"""An agent learns to schedule, and is raced against the policies that think: whatever comes out.

A small network gives every device a probability to be scheduled, from what the server knows of it (its row of the
observation), of the cell, and of the average device. It is trained by proximal policy optimisation in plain PyTorch, on
16 cells at once, whose clients one call of the engine trains.

Run: python examples/learn_to_schedule.py [minutes] [seeds]    (3 minutes and 5 seeds by default)
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

import fedcell as fc
import fedcell.gym

CELLS, STEPS, EPOCHS, PROFILE, WIDTH = 16, 16, 4, 10, 32
DISCOUNT, CLIP = 0.97, 0.2
# A fifth of the samples, each five times as long: rounds as long as the paper's, trained in a fifth of the time.
SPEC = fc.Spec(
    budget_s=200.0,
    target_accuracy=0.8,
    cell=fc.Cell(radius_m=1400.0),
    devices=fc.Devices(seconds_per_sample=1e-2, samples_per_second=800.0),
    task=fc.TaskSpec(epochs=0.2),
)


class Agent(nn.Module):
    """Logits of the devices (cells, M), and the value of the state (cells,)."""

    def __init__(self) -> None:
        super().__init__()
        features = len(fedcell.gym.DEVICE_FEATURES) + PROFILE
        self.one = nn.Sequential(nn.Linear(features + 3, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.logit = nn.Linear(2 * WIDTH, 1)
        self.value = nn.Linear(WIDTH, 1)

    def forward(self, devices: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return both for a batch of observations."""
        seen = torch.cat([devices, cell[:, None].expand(-1, devices.shape[1], -1)], dim=2)
        each = self.one(seen)
        all_of_them = each.mean(1)
        both = torch.cat([each, all_of_them[:, None].expand_as(each)], dim=2)
        return self.logit(both)[..., 0], self.value(all_of_them)[..., 0]


def tensors(seen: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Return an observation for the network."""
    return torch.tensor(seen["devices"]), torch.tensor(seen["cell"])


def log_probability(logits: Tensor, action: Tensor) -> Tensor:
    """Return that of the sets of devices, (cells,)."""
    return -nn.functional.binary_cross_entropy_with_logits(logits, action, reduction="none").sum(1)


def train(agent: Agent, minutes: float) -> int:
    """Train for so long; return the number of rounds that were played."""
    envs = gymnasium.make_vec("fedcell/Cell-v0", CELLS, "vector_entry_point", spec=SPEC)
    optimiser = torch.optim.Adam(agent.parameters(), 3e-3)
    seen, _ = envs.reset(seed=10_000)  # not the seeds of the race
    began_s, played = time.monotonic(), 0
    while time.monotonic() - began_s < 60 * minutes:
        kept: list[tuple[Tensor, ...]] = []
        for _ in range(STEPS):
            devices, cell = tensors(seen)
            with torch.no_grad():
                logits, value = agent(devices, cell)
                action = torch.bernoulli(torch.sigmoid(logits))
            seen, rewards, ended, cut, _ = envs.step(action.numpy().astype(np.int8))
            kept.append((devices, cell, action, log_probability(logits, action), value,
                         torch.tensor(rewards, dtype=torch.float32), torch.tensor(ended | cut)))  # fmt: skip
            played += CELLS
        with torch.no_grad():
            _, after = agent(*tensors(seen))
        learn(agent, optimiser, kept, after)
        if played % (8 * STEPS * CELLS) == 0:
            gained = float(torch.stack([one[5] for one in kept]).mean())
            print(f"{played:6} rounds: {gained:+.4f} a round", flush=True)
    return played


def learn(agent: Agent, optimiser: torch.optim.Optimizer, kept: list[tuple[Tensor, ...]], after: Tensor) -> None:
    """One update from what was played: generalised advantages, clipped ratios."""
    advantages, ahead = list[Tensor](), torch.zeros(CELLS)
    for *_, value, reward, over in reversed(kept):
        there = (~over).float()
        ahead = reward + DISCOUNT * there * after - value + 0.95 * DISCOUNT * there * ahead
        advantages.append(ahead)
        after = value
    devices, cell, action, before, value = (torch.cat([one[i] for one in kept]) for i in range(5))
    advantage = torch.cat(advantages[::-1])
    target = advantage + value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    for _ in range(EPOCHS):
        logits, now = agent(devices, cell)
        ratio = torch.exp(log_probability(logits, action) - before)
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        spread = torch.distributions.Bernoulli(logits=logits).entropy().mean()
        optimiser.zero_grad()
        (-gain - 0.01 * spread + 0.5 * (now - target).square().mean()).backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimiser.step()


@dataclass(frozen=True)
class Learned(fc.Policy):
    """The trained agent as a policy: every device that is more likely in than out."""

    weights: str = "agent.npz"
    uses_profiles: ClassVar[bool] = True
    uses_norms: ClassVar[bool] = True

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> np.ndarray:  # noqa: ARG002
        """Return the devices of this round; the network in NumPy, for whoever races it needs no PyTorch."""
        ids = np.arange(len(view)) if view.ids is None else view.ids
        seen = fedcell.gym.observe(view, int(ids.max()) + 1, PROFILE)
        with np.load(self.weights) as w:
            rows = np.concatenate([seen["devices"][ids], np.tile(seen["cell"], (len(ids), 1))], axis=1)
            each = np.tanh(
                np.tanh(rows @ w["one.0.weight"].T + w["one.0.bias"]) @ w["one.2.weight"].T + w["one.2.bias"]
            )
            both = np.concatenate([each, np.tile(each.mean(0), (len(ids), 1))], axis=1)
            logits = (both @ w["logit.weight"].T + w["logit.bias"])[:, 0]
        return np.flatnonzero(logits > 0.0) if (logits > 0.0).any() else np.array([int(logits.argmax())])


if __name__ == "__main__":
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    torch.manual_seed(0)
    agent = Agent()
    print(f"{train(agent, minutes)} rounds played")
    weights = Path("agent.npz")
    np.savez(weights, **{name: array.numpy() for name, array in agent.state_dict().items()})
    policies = [f"{__name__}:Learned", "diverse", "greedy", "random:k=8"]
    race = SPEC.changed({"target_accuracy": None}, {"policy": policies, "seed": list(range(seeds))})
    result = fc.run_race(race, target=0.8)
    for name, summary in result.summaries().items():
        print(
            f"{name:20} best {summary.best.text(100)} %, 80 % after {summary.to_target.median_s:.0f} s (median; "
            f"{summary.to_target.reached} of {seeds} seeds), {summary.devices.mean:.1f} devices, "
            f"{summary.round_s.mean:.1f} s a round"
        )
    print(*result.verdicts(), sep="\n")

"""How a round is judged, device by device: the table in the docstring of protocol.outcome.judge, read aloud."""

from dataclasses import dataclass

INF = float("inf")


@dataclass
class Device:
    """One device of a round: times in seconds from its start."""

    began_s: float
    finish_s: float
    late_s: float
    leaves_s: float
    upload_s: float
    arrived: bool = True  # whether its model came until the wait was over
    usable: bool = True


@dataclass
class Judged:
    delivered: bool
    failed: bool
    learnt: tuple[float, float, bool] | None  # began, finish, censored; None for nothing


def judged(
    devices: list[Device], needed: int, ended_s: float | None, asks_who_came: bool
) -> tuple[float, list[Judged]]:
    """The length of the round, and what became of each device."""
    comes_s = [d.finish_s if d.arrived else INF for d in devices]
    left = [d.leaves_s < s for d, s in zip(devices, comes_s, strict=True)]
    good = []
    for d, s, gone in zip(devices, comes_s, left, strict=True):
        if d.arrived and d.usable and not gone and s <= d.late_s:
            good.append(s)
    round_s = ended_s
    if round_s is None:
        last_s = max(min(s, d.leaves_s) for d, s in zip(devices, comes_s, strict=True))
        round_s = min(last_s, max(d.late_s for d in devices))
    cut_s = INF
    if needed < len(devices) and len(good) >= max(needed, 1):
        cut_s = sorted(good)[max(needed, 1) - 1] * (1.0 + 1e-9)
        round_s = min(round_s, cut_s)
    found = []
    for d, s, gone in zip(devices, comes_s, left, strict=True):
        if gone:
            found.append(Judged(False, False, None))
        elif not d.usable or (not d.arrived and asks_who_came and cut_s == INF):
            found.append(Judged(False, True, None))
        elif s > round_s:
            least_s = min(d.late_s, cut_s, round_s)
            used = d.arrived and s <= min(d.late_s, cut_s)
            found.append(Judged(used, False, (max(least_s - d.upload_s, 0.0), least_s, True)))
        else:
            found.append(Judged(d.arrived and s <= min(d.late_s, cut_s), False, (d.began_s, d.finish_s, False)))
    return round_s, found

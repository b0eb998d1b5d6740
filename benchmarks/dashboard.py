"""How the dashboard's server bears load, and how soon its page is seen: `python benchmarks/dashboard.py`.

The server is `fedcell serve` in a process of its own, on one results file; the load comes from another process.
Requests are sent at fixed times whatever the answers do (open loop), and a latency counts from the time at which its
request was due. A request is what the Plan page sends: a CSV of 1,000 devices, nine policies, the curve. Memory is the
server's resident set.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=120)
CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]


def start_server(folder: Path) -> tuple[subprocess.Popen[str], str, int]:
    command = [sys.executable, "-m", "fedcell", "serve", str(folder / "results.db"), "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().split()[3]
    return process, url, int(url.rstrip("/").rpartition(":")[2])


def rss_mb(process: subprocess.Popen[str]) -> float:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def plan_requests(port: int, devices: int, tables: int) -> list[bytes]:
    """Fifty requests with another bandwidth each, as of somebody who drags the slider, over so many tables."""
    return [plan_request(port, devices, i % tables, 1e6 + 1e5 * i) for i in range(50)]


def plan_request(port: int, devices: int, seed: int, bandwidth_hz: float) -> bytes:
    rng = np.random.default_rng(seed)
    lines = [f"d{i},{1000 * np.sqrt(rng.random()):.3f},{6 + rng.exponential(0.75):.4f}" for i in range(devices)]
    table = "\n".join(["device,distance_m,compute_s", *lines])
    body = json.dumps({"devices_csv": table, "cell": {"bandwidth_hz": bandwidth_hz}}).encode()
    head = f"POST /api/plan HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Load:
    """An open-loop client with as many kept connections as it takes."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        self.port, self.requests = port, requests
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.latency_s: list[float] = []
        self.statuses: Counter[int] = Counter()

    async def ask(self, number: int, due: float) -> None:
        """One request, due at this time."""
        try:
            reader, writer = self.free.pop() if self.free else await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(self.requests[number % len(self.requests)])
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            self.statuses[int(head.split()[1])] += 1
            self.latency_s.append(time.perf_counter() - due)
            self.free.append((reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            self.statuses[0] += 1

    async def run(self, rate: float, seconds: float) -> dict[str, Any]:
        """So many requests a second, for so long."""
        tasks, began = [], time.perf_counter()
        for i in range(int(rate * seconds)):
            due = began + i / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(self.ask(i, due)))
        await asyncio.gather(*tasks)
        return {"latency_s": self.latency_s, "statuses": dict(self.statuses)}


def load(port: int, rate: float, seconds: float, tables: int = 1) -> dict[str, Any]:
    """Run the load in a process of its own."""
    command = [sys.executable, __file__, "--load", str(port), str(rate), str(seconds), str(tables)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def told(found: dict[str, Any]) -> list[str]:
    ms = sorted(1e3 * s for s in found["latency_s"])
    p99 = ms[int(0.99 * (len(ms) - 1))]
    answers = ", ".join(f"{count} x {status}" for status, count in sorted(found["statuses"].items()))
    return [f"{statistics.median(ms):.1f}", f"{p99:.1f}", f"{ms[-1]:.1f}", answers]


def plan_load(process: subprocess.Popen[str], port: int, quick: bool) -> None:
    title = "/api/plan, 1,000 devices, 9 policies (target: p99 under 100 ms at 100 requests/s)"
    table = Table(
        "requests/s", "tables", "s", "p50 ms", "p99 ms", "max ms", "answers", "MB before", "MB after", title=title
    )
    load(port, 20, 2)
    short = 3 if quick else 20
    # One table is known after its first time, as while a slider is dragged; of fifty none is.
    for rate, tables, seconds in ((50, 1, short), (100, 1, short), (100, 50, short), (200, 1, 5 if quick else 60)):
        before = rss_mb(process)
        found = load(port, rate, seconds, tables)
        table.add_row(str(rate), str(tables), str(seconds), *told(found), f"{before:.0f}", f"{rss_mb(process):.0f}")
    CONSOLE.print(table)
    assert process.poll() is None, "the server ended"


async def open_streams(port: int, id: str, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    streams = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /api/races/{id}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        streams.append((reader, writer))
    return streams


async def read_to_end(reader: asyncio.StreamReader) -> int:
    size = 0
    while data := await reader.read(65536):
        size += len(data)
        if b"event: end" in data:
            break
    return size


async def watched_race(process: subprocess.Popen[str], port: int, streams: int, quick: bool) -> list[str]:
    """A race watched by many, with one client that never reads; bytes, seconds and memory."""
    import httpx

    seeds = 1 if quick else 5
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        # Another budget each time, or the runs would come from the store.
        race = {"spec": {"budget_s": (100 if quick else 450) + streams}, "seeds": seeds}
        before, began = rss_mb(process), time.perf_counter()
        id = (await client.post("/api/races", json=race)).json()["id"]
        deaf = socket.create_connection(("127.0.0.1", port))
        deaf.sendall(f"GET /api/races/{id}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        opened = await open_streams(port, id, streams)
        sizes = await asyncio.gather(*(read_to_end(reader) for reader, _ in opened))
        wall_s = time.perf_counter() - began
        for _, writer in opened:
            writer.close()
        deaf.close()
        assert min(sizes) > 0
        return [str(streams), f"{wall_s:.1f}", f"{sum(sizes) / 2**20:.1f}", f"{before:.0f}", f"{rss_mb(process):.0f}"]


def first_paint_ms(url: str) -> list[float]:
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for _ in range(5):
            page = browser.new_context(bypass_csp=True).new_page()  # or waiting for a function would be refused
            page.goto(url, wait_until="load")
            page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0", timeout=10_000)
            found.append(float(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")))
            page.context.close()
        browser.close()
    return found


FRAMES = """seconds => new Promise((resolve) => {
  const times = [];
  let last = performance.now();
  const end = last + 1000 * seconds;
  const next = () => {
    const now = performance.now();
    times.push(now - last);
    last = now;
    if (now < end) requestAnimationFrame(next);
    else resolve(times);
  };
  requestAnimationFrame(next);
})"""


def big_race(url: str, policies: int, seeds: int, budget_s: float) -> str:
    """Queue a race of so many policies and seeds, whose small models cost the machine little; its id."""
    import httpx

    lines = [f"random:k={k}" for k in range(2, 2 + policies)]
    spec = {"budget_s": budget_s, "devices": {"count": 20}, "task": {"hidden": [4], "epochs": 0.05}}
    answer = httpx.post(f"{url}api/races", json={"spec": spec, "policies": lines, "seeds": seeds}, timeout=60)
    answer.raise_for_status()
    return str(answer.json()["id"])


def smoothness(url: str, policies: int, seeds: int, budget_s: float, seconds: float, minutes: float) -> Table:
    """Frame times of the Race page while a large race runs and while it is replayed, and the tab's memory in time.

    A frame's times are the wall's; script and main thread are processor time a frame, which other work does not change.
    """
    import httpx
    from playwright.sync_api import sync_playwright

    title = f"The Race page with {policies} policies x {seeds} seeds, {budget_s:g} simulated s"
    columns = ("frames", "p50 ms", "p99 ms", "max ms", "script ms", "main thread ms", "heap MB", "DOM nodes")
    table = Table("while", *columns, title=title)
    id = big_race(url, policies, seeds, budget_s)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, "--enable-precise-memory-info"])
        page = browser.new_context(viewport={"width": 1366, "height": 768}).new_page()
        page.goto(f"{url}#race/{id}")
        page.locator(".race-card path.line[d^=M]").first.wait_for(timeout=60_000)

        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent_ms() -> list[float]:
            found = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
            return [1e3 * found[name] for name in ("ScriptDuration", "TaskDuration")]

        def row(name: str, measured_s: float) -> None:
            before = spent_ms()
            times = sorted(page.evaluate(FRAMES, measured_s))
            spent = [(b - a) / len(times) for a, b in zip(before, spent_ms(), strict=True)]
            heap = page.evaluate("performance.memory.usedJSHeapSize") / 2**20
            nodes = page.evaluate("document.querySelectorAll('*').length")
            p50, p99 = (times[int(part * (len(times) - 1))] for part in (0.5, 0.99))
            shown = (p50, p99, times[-1], *spent, heap)
            table.add_row(name, str(len(times)), *(f"{number:.1f}" for number in shown), str(nodes))

        row("it runs", seconds)
        while httpx.get(f"{url}api/races/{id}", timeout=60).json()["state"] == "running":
            time.sleep(1)
        page.get_by_role("button", name="Replay").click()
        row("it is replayed", seconds)
        began = time.perf_counter()
        while time.perf_counter() - began < 60 * minutes:
            page.wait_for_timeout(5000)
            if page.locator(".replay .play").get_attribute("aria-pressed") == "false":
                page.locator(".replay .play").click()
        row(f"it was replayed for {minutes:g} min", min(seconds, 5.0))
        browser.close()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--load", nargs=4, metavar=("PORT", "RATE", "SECONDS", "TABLES"), help=argparse.SUPPRESS)
    parser.add_argument(
        "--frames", action="store_true", help="only the frame times of a large race, and the tab's memory"
    )
    parser.add_argument("--policies", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget-s", type=float, default=450.0, help="of that race, simulated seconds")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long frames are timed")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="how long it is replayed before memory is read again"
    )
    options = parser.parse_args()
    if options.load:
        port, rate, seconds, tables = int(options.load[0]), *map(float, options.load[1:3]), int(options.load[3])
        print(json.dumps(asyncio.run(Load(port, plan_requests(port, 1000, tables)).run(rate, seconds))))
        return
    with tempfile.TemporaryDirectory() as name:
        process, url, port = start_server(Path(name))
        large = (options.policies, options.seeds, options.budget_s, options.seconds, options.minutes)
        if options.quick:
            large = (4, 2, 60.0, 3.0, 0.1)
        try:
            if options.frames:
                CONSOLE.print(smoothness(url, *large))
                return
            plan_load(process, port, options.quick)
            table = Table("streams", "race s", "MB sent", "MB before", "MB after", title="A race and its event streams")
            for streams in (1, 50):
                table.add_row(*asyncio.run(watched_race(process, port, streams, options.quick)))
            CONSOLE.print(table)
            paints = first_paint_ms(url)
            CONSOLE.print(smoothness(url, *large))
            CONSOLE.print(f"First contentful paint (target: under 1000 ms): {', '.join(f'{p:.0f}' for p in paints)} ms")
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()

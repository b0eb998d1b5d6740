"""Times of uploads, measured on the wire: packets at the base station with the kernel's time stamps.

A packet socket on the base station's bridge sees every frame of every device. Nothing is decrypted: requests and their
answers are told apart by direction, since HTTP/1.1 answers a connection's request before it takes the next. What a
node of Flower 1.41 does in a round is a fixed sequence of such exchanges:

    pull-messages (a poll), pull-object for each object (one of them answers with the model), confirm-message-received,
    silence while it computes, push-messages, push-object for each object (one of them carries the model), polls.

Pushes are recognised by their size. A connection that was idle for 5 s is opened again. After TLS's handshake the
server sends session tickets, perhaps while a request is under way: they are the first that it sends after its hello,
and if they are sent again, what follows tells them from an answer: a request's first frame carries its headers alone
and is never full.

A device's upload begins with the first byte of its push-messages and ends with the last byte of its last push-object.
"""

import math
import socket
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedcell.testbed.network import FRAME_BYTES, address

HEADER_BYTES = 14 + 20 + 32
"""Of Ethernet, IP, and TCP with its time stamps, in every frame."""
SEGMENT_BYTES = FRAME_BYTES - HEADER_BYTES
OBJECTS = 6
"""Of the app's reply, each pushed on its own: the model's bytes, and Flower's Array, ArrayRecord, MetricRecord,
RecordDict and Message."""
REPLY_BYTES = 8_900
"""What a reply has beside the model: of 1 + OBJECTS requests the HTTP headers (0.8 kB each, most of it the node's
signed identity), object ids, records and TLS."""

HELLO_BYTES = range(200, 600)
"""Of the first step of TLS's handshake. A request's first frame is larger: its headers have the node's signature."""
MIN_PUSH_BYTES = 1_000
"""A push is larger; pulls, confirmations, heartbeats, polls and the parts of TLS's handshake are smaller."""
LULL_S = 0.5
"""Between two pushes of a reply there is less than this."""

_ETH_P_ALL = 3  # only so are packets seen that leave
_ETH_P_IP = b"\x08\x00"
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SNAP_BYTES = 14 + 60 + 20
_BUFFER_BYTES = 32 * 2**20


OVERHEAD_BYTES = REPLY_BYTES + HEADER_BYTES * 2 * (1 + OBJECTS) * SEGMENT_BYTES / FRAME_BYTES
"""What `upload_bytes` counts beside the model, as if it were more of the model's bytes: about 9.8 kB."""


def upload_bytes(model_bytes: int) -> int:
    """Return how much the link carries for one upload, including all headers; the plan uses this size.

    A request ends in a frame that is not full, and its headers go in one of their own; the device acknowledges every
    answer with an empty frame. A model of 203,560 bytes takes 223 kB, 9.6 % more. TCP's slow start costs nothing here:
    the queue is at the sender, so that a handful of frames fills the link.
    """
    requests = 1 + OBJECTS
    frames = math.ceil((model_bytes + REPLY_BYTES) / SEGMENT_BYTES) + 2 * requests
    return model_bytes + REPLY_BYTES + HEADER_BYTES * frames


@dataclass(frozen=True)
class Packet:
    """A TCP segment with data between a device and the base station.

    Attributes:
        time_s: when the base station's interface had it, by the wall clock.
        device: number of the device.
        port: the device's TCP port, which tells its connections apart.
        up: whether the device sent it.
        bytes: of TCP payload.
    """

    time_s: float
    device: int
    port: int
    up: bool
    bytes: int


@dataclass
class Exchange:
    """A request of a device and its answer.

    Attributes:
        began_s: when the request's first packet arrived.
        ended_s: when its last did.
        up_bytes: of the request.
        up_frames: in which these came.
        answered_s: when the answer's first packet left; None if it has not.
        down_bytes: of the answer.
    """

    began_s: float
    ended_s: float
    up_bytes: int
    up_frames: int = 0
    answered_s: float | None = None
    down_bytes: int = 0


@dataclass(frozen=True)
class Upload:
    """One reply on the wire.

    Attributes:
        began_s: when its first byte arrived, by the wall clock.
        ended_s: when its last did.
        bytes: on the wire, with the headers of its frames and of those that acknowledge the answers.
    """

    began_s: float
    ended_s: float
    bytes: int


class Tap:
    """Records the packets at the base station; make it inside the base station's namespace."""

    def __init__(self, count: int, server_port: int) -> None:
        self._devices = {socket.inet_aton(address(device)): device for device in range(count)}
        self._server_port = server_port
        self._packets: list[Packet] = []
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.bind(("cell", _ETH_P_ALL))
        threading.Thread(target=self._listen, daemon=True).start()

    def packets(self, since_s: float) -> list[Packet]:
        """What passed since this time of the wall clock, in order; older packets are forgotten."""
        time.sleep(0.01)  # what the kernel holds is read by then
        with self._lock:
            self._packets = [packet for packet in self._packets if packet.time_s >= since_s]
            return list(self._packets)

    def _listen(self) -> None:
        while True:
            frame, extra, _, _ = self._socket.recvmsg(_SNAP_BYTES, 64)
            packet = self._parse(frame, extra)
            if packet is not None:
                with self._lock:
                    self._packets.append(packet)

    def _parse(self, frame: bytes, extra: list[tuple[int, int, bytes]]) -> Packet | None:
        if len(frame) < 54 or frame[12:14] != _ETH_P_IP or frame[23] != socket.IPPROTO_TCP:
            return None
        tcp = 14 + 4 * (frame[14] & 15)
        length = int.from_bytes(frame[16:18], "big") - (tcp - 14) - 4 * (frame[tcp + 12] >> 4)
        if length <= 0:
            return None
        source, target = frame[26:30], frame[30:34]
        source_port, target_port = struct.unpack_from("!HH", frame, tcp)
        up = target_port == self._server_port
        device = self._devices.get(source if up else target)
        if device is None or not (up or source_port == self._server_port):
            return None
        seconds, nanoseconds = struct.unpack("qq", extra[0][2])
        return Packet(seconds + 1e-9 * nanoseconds, device, source_port if up else target_port, up, length)


def exchanges(packets: Iterable[Packet], device: int) -> list[Exchange]:
    """Return a device's requests and answers in the order in which they began; a TLS handshake's first step is one."""
    found: list[Exchange] = []
    open_on: dict[int, Exchange] = {}  # by connection
    greeted: dict[int, Exchange] = {}  # by connection whose session tickets have not come yet: its hello
    for packet in packets:
        if packet.device != device:
            continue
        now = open_on.get(packet.port)
        if packet.up:
            if now is not None and packet.bytes >= SEGMENT_BYTES:
                now.answered_s = None  # what came was no answer
            fresh = now is None
            if now is None or now.answered_s is not None:
                now = open_on[packet.port] = Exchange(packet.time_s, packet.time_s, 0)
                found.append(now)
            if fresh and packet.bytes in HELLO_BYTES:
                greeted[packet.port] = now
            now.ended_s, now.up_bytes, now.up_frames = packet.time_s, now.up_bytes + packet.bytes, now.up_frames + 1
        elif now is not None:
            if greeted.get(packet.port, now) is not now:
                del greeted[packet.port]
                continue
            now.answered_s = packet.time_s if now.answered_s is None else now.answered_s
            now.down_bytes += packet.bytes
    return found


def upload(packets: Sequence[Packet], device: int, model_bytes: int, sent_bytes: int | None = None) -> Upload | None:
    """Return the device's upload among the packets of a round; None if there is no complete one.

    An upload that began before the device had this round's model, a late answer to an earlier round, is ignored.

    Args:
        packets: of the round.
        device: its number.
        model_bytes: of the model that it gets.
        sent_bytes: of the model, or rounded update, that it sends; as many by default.
    """
    sent_bytes = model_bytes if sent_bytes is None else sent_bytes
    seen = exchanges(packets, device)
    pulled_s = next((e.answered_s for e in seen if e.answered_s and e.down_bytes >= model_bytes), 0.0)
    pushes = [e for e in seen if e.began_s > pulled_s and e.answered_s and e.up_bytes >= MIN_PUSH_BYTES]
    model = next((i for i, e in enumerate(pushes) if e.up_bytes >= sent_bytes), 0)
    if model == 0:
        return None
    first = model - 1  # or further back: small objects overtake a model whose connection is still being made
    while first > 0 and pushes[first].began_s - pushes[first - 1].ended_s < LULL_S:
        first -= 1
    reply = pushes[first : first + 1 + OBJECTS]
    if len(reply) < 1 + OBJECTS:
        return None
    on_the_wire = sum(e.up_bytes + HEADER_BYTES * (e.up_frames + 1) for e in reply)
    return Upload(reply[0].began_s, max(e.ended_s for e in reply), on_the_wire)

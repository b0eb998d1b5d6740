"""Uploads recognised among packets, without a network."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from fedcell.testbed.wire import OBJECTS, SEGMENT_BYTES, Packet, exchanges, upload, upload_bytes

MODEL = 200_000


def exchange(at_s: float, sent: int, answer: int, *, took_s: float = 0.0, port: int = 1) -> list[Packet]:
    """A request in two packets, and its answer 10 ms later; an answer of 0 bytes never comes."""
    packets = [Packet(at_s, 0, port, True, 800), Packet(at_s + took_s, 0, port, True, sent - 800)]
    return packets + ([Packet(at_s + took_s + 0.01, 0, port, False, answer)] if answer else [])


def in_order(*parts: Iterable[Packet]) -> list[Packet]:
    return sorted((packet for part in parts for packet in part), key=lambda packet: packet.time_s)


def pulls(at_s: float) -> list[Packet]:
    return in_order(exchange(at_s, 900, 700), exchange(at_s + 0.1, 970, 300), exchange(at_s + 0.2, 970, MODEL + 500))


def pushes(at_s: float, took_s: float, *, small: int = OBJECTS - 1) -> list[Packet]:
    """push-messages, then the model in full frames and beside it the small objects."""
    parts = [exchange(at_s + 0.1 + 0.05 * i, 1100, 170, port=2) for i in range(small)]
    frames = MODEL // SEGMENT_BYTES + 1
    step_s = (took_s - 0.05) / frames
    model = [Packet(at_s + 0.05, 0, 1, True, 800)]
    model += [Packet(at_s + 0.05 + step_s * (i + 1), 0, 1, True, SEGMENT_BYTES) for i in range(frames)]
    return in_order(exchange(at_s, 1500, 600), model, [Packet(at_s + took_s + 0.01, 0, 1, False, 170)], *parts)


def poll(at_s: float) -> list[Packet]:
    return exchange(at_s, 900, 150)


def test_exchanges_are_split_where_the_server_answers() -> None:
    found = exchanges(in_order(poll(1.0), exchange(1.005, 2000, 300, took_s=1.0, port=2), poll(2.5)), 0)
    assert [(e.began_s, e.up_bytes, e.down_bytes) for e in found] == [
        (1.0, 900, 150),
        (1.005, 2000, 300),
        (2.5, 900, 150),
    ]
    assert exchanges(poll(1.0), 1) == []


def test_an_upload_reaches_from_the_first_push_to_the_last_byte() -> None:
    packets = in_order(poll(0.0), pulls(1.0), pushes(7.0, 3.0), poll(10.2), poll(11.2))
    found = upload(packets, 0, MODEL)
    assert found is not None
    assert (found.began_s, found.ended_s) == pytest.approx((7.0, 10.0))


def test_small_objects_after_the_model_count_and_polls_do_not() -> None:
    tail = exchange(10.3, 1200, 170)
    packets = in_order(pulls(1.0), pushes(7.0, 3.0, small=OBJECTS - 2), tail, poll(10.6), poll(11.6))
    found = upload(packets, 0, MODEL)
    assert found is not None
    assert found.ended_s == pytest.approx(10.3)


def test_a_late_reply_to_an_earlier_round_is_not_this_rounds() -> None:
    late = pushes(0.1, 1.0)
    assert upload(in_order(late, poll(1.2), pulls(1.3)), 0, MODEL) is None
    found = upload(in_order(late, poll(1.2), pulls(1.3), pushes(7.0, 3.0)), 0, MODEL)
    assert found is not None
    assert found.began_s == pytest.approx(7.0)


def test_small_objects_may_be_through_before_the_model_begins() -> None:
    early = in_order(exchange(7.015, 1170, 170, port=2), exchange(7.03, 1170, 170, port=2))
    packets = in_order(pulls(1.0), pushes(7.0, 3.0, small=OBJECTS - 3), early, poll(10.2))
    found = upload(packets, 0, MODEL)
    assert found is not None
    assert (found.began_s, found.ended_s) == pytest.approx((7.0, 10.0))


def test_a_heartbeat_is_no_part_of_a_reply() -> None:
    beats = in_order(exchange(6.99, 912, 170, port=3), exchange(7.5, 912, 170, port=3))
    found = upload(in_order(pulls(1.0), pushes(7.0, 3.0), beats), 0, MODEL)
    assert found is not None
    assert (found.began_s, found.ended_s) == pytest.approx((7.0, 10.0))


def test_a_pull_sent_twice_is_no_push() -> None:
    twice = [*exchange(1.05, 970, 0, port=2), Packet(1.06, 0, 2, True, 170), Packet(1.07, 0, 2, False, 300)]
    found = upload(in_order(pulls(0.5), twice, pushes(7.0, 3.0)), 0, MODEL)
    assert found is not None
    assert (found.began_s, found.ended_s) == pytest.approx((7.0, 10.0))


def test_a_handshake_on_the_way_is_no_request_and_its_tickets_no_answer() -> None:
    hello = in_order(handshake(6.9, port=1), handshake(7.03, port=2))
    ticket = [Packet(7.2, 0, 1, False, 510)]  # while the model is being sent on this connection
    usual = in_order(pulls(1.0), pushes(7.0, 3.0), poll(10.2))
    found = upload(in_order(usual, hello, ticket), 0, MODEL)
    assert found is not None
    assert (found.began_s, found.ended_s) == pytest.approx((7.0, 10.0))


def test_session_tickets_between_the_parts_of_a_push_are_no_answer() -> None:
    hello = [Packet(6.9, 0, 1, True, 517), Packet(6.91, 0, 1, False, 740), Packet(6.99, 0, 1, True, 80)]
    tickets = [Packet(7.0, 0, 1, False, 510)]
    apart = [replace(p, time_s=7.005) if p.time_s == 7.0 and p.bytes == 700 else p for p in pushes(7.0, 3.0)]
    others = [replace(p, port=9) for p in pulls(1.0)]
    found = upload(in_order(others, hello, tickets, apart), 0, MODEL)
    assert found is not None
    assert (found.began_s, found.ended_s) == pytest.approx((7.0, 10.0), abs=0.02)


def handshake(at_s: float, port: int) -> list[Packet]:
    sizes = ((True, 517), (False, 740), (True, 80), (False, 510))
    return [Packet(at_s + 0.001 * i, 0, port, up, size) for i, (up, size) in enumerate(sizes)]


def test_an_upload_that_is_not_whole_is_none() -> None:
    cut = [packet for packet in in_order(pulls(1.0), pushes(7.0, 3.0)) if packet.time_s < 9.0]
    assert upload(cut, 0, MODEL) is None
    assert upload(in_order(pulls(1.0), pushes(7.0, 3.0, small=OBJECTS - 2)), 0, MODEL) is None
    assert upload([], 0, MODEL) is None


def test_the_overhead_is_a_tenth_for_the_papers_model() -> None:
    # 203,560 + 8,900 bytes, and 66 bytes of headers for each of 147 full frames and of 2 more a request.
    assert upload_bytes(203_560) == 203_560 + 8_900 + 66 * (147 + 2 * 7)

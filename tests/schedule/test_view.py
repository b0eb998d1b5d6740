"""What a policy is shown: the columns' checks, parts of a view, and what follows from answers."""

from typing import Any

import numpy as np
import pytest

import fedcell as fc

NAN = np.nan
EVERY: dict[str, Any] = {
    "must_include": [True, False, False],
    "ids": [7, 3, 5],
    "last_round": [1, 2, 3],
    "mean_upload_s": [1.0, 2.0, 3.0],
    "samples": [10, 20, 30],
    "label_counts": [[1, 2], [3, 4], [5, 6]],
    "profiles": [[0.5, 0.5], [NAN, NAN], [1.0, 0.0]],
    "recent": [0.1, 0.2, 0.3],
    "joules": [1.0, 2.0, 3.0],
    "losses": [0.1, NAN, 0.3],
    "rms_losses": [0.1, NAN, 0.3],
    "norms": [0.1, NAN, 0.3],
    "heard_round": [1, -1, 2],
    "updates": [[1.0, 2.0], [NAN, NAN], [3.0, 4.0]],
    "peaks": [1.0, NAN, 3.0],
    "absolutes": [1.0, NAN, 3.0],
    "squares": [1.0, NAN, 3.0],
    "heard_epochs": [1.0, NAN, 3.0],
    "turns": [1, 0, 2],
    "took_s": [1.0, NAN, 3.0],
    "planned_s": [1.0, NAN, 3.0],
    "presence": [0.1, 0.2, 0.3],
}
WIDE = {"label_counts", "profiles", "updates"}
MAY_BE_UNKNOWN = {
    *("losses", "rms_losses", "norms", "updates", "peaks", "absolutes", "squares", "heard_epochs"),
    *("took_s", "planned_s"),
}
FINITE = {"recent", "joules", "presence"}


def view_of(**columns: Any) -> fc.RoundView:
    return fc.RoundView([1.0, 2.0, 4.0], [5.0, 6.0, 7.0], **columns)


@pytest.mark.parametrize("name", EVERY)
def test_a_column_has_an_entry_for_each_device(name: str) -> None:
    view = view_of(**{name: EVERY[name]})
    np.testing.assert_array_equal(getattr(view, name), EVERY[name])
    np.testing.assert_array_equal(getattr(view.only(np.array([2, 0])), name), np.array(EVERY[name])[[2, 0]])
    for wrong in (EVERY[name][:2], [EVERY[name]], 5):
        with pytest.raises(fc.InputError, match=rf"{name} has shape .*; give one entry for each of the 3 devices"):
            view_of(**{name: wrong})
    narrow = np.array(EVERY[name])[:, 0] if name in WIDE else np.array(EVERY[name])[:, np.newaxis]
    with pytest.raises(fc.InputError, match=f"{name} has shape "):
        view_of(**{name: narrow})


@pytest.mark.parametrize("name", sorted(MAY_BE_UNKNOWN | FINITE | {"profiles"}))
def test_numbers_are_finite_or_unknown_throughout(name: str) -> None:
    column = np.array(EVERY[name], dtype=float)
    for bad in (np.inf, -np.inf):
        wrong = column.copy()
        wrong[2] = bad
        with pytest.raises(fc.InputError, match=rf"{name}\[2\] is .*inf.*; give finite numbers"):
            view_of(**{name: wrong})
    unknown = column.copy()
    unknown[2] = NAN
    if name in FINITE:
        with pytest.raises(fc.InputError, match=rf"{name}\[2\] is nan; give finite numbers$"):
            view_of(**{name: unknown})
    else:
        np.testing.assert_array_equal(getattr(view_of(**{name: unknown}), name), unknown)
    if name in WIDE:
        unknown[2, 0] = 1.0
        with pytest.raises(fc.InputError, match=rf"{name}\[2\] is .*, or NaN throughout where nothing is known"):
            view_of(**{name: unknown})
    with pytest.raises(fc.InputError, match=f"{name} is of type .*; give numbers, one for each device"):
        view_of(**{name: np.full(column.shape, "x")})


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"must_include": [1, 0, 0]}, "must_include is of type int64; give booleans"),
        ({"ids": [1.0, 2.0, 3.0]}, "ids must be distinct integers"),
        ({"ids": [2, 1, 2]}, "ids must be distinct integers"),
        ({"ids": [1, 1, 2]}, "ids must be distinct integers"),
        ({"mean_upload_s": [1.0, 0.0, 1.0]}, r"mean_upload_s\[1\] is .*0.0.*; give a positive number of seconds"),
        ({"mean_upload_s": [1.0, 1.0, np.inf]}, r"mean_upload_s\[2\] is .*inf"),
        ({"round_losses": [[1.0]]}, r"round_losses has shape \(1, 1\); give one number a round"),
        ({"learnt": 5.0}, r"learnt has shape \(\); give a vector of numbers"),
        ({"downlink": fc.Multicast(np.ones(2))}, "the downlink has 2 times, upload_s has 3; give one each"),
    ],
)
def test_what_cannot_be_is_named(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        view_of(**columns)


def test_a_part_of_a_view_is_of_the_same_round() -> None:
    law, downlink = fc.Power(np.array([1.0, 2.0, 3.0])), fc.Multicast(np.array([0.1, 0.2, 0.3]))
    view = view_of(law=law, downlink=downlink, round_index=4, learnt=[1.0, 2.0], clock_s=9.0)
    few = view.only(np.array([2, 0]))
    assert (few.upload_s.tolist(), few.compute_s.tolist(), len(few)) == ([4.0, 1.0], [7.0, 5.0], 2)
    assert (few.round_index, few.clock_s, np.asarray(few.learnt).tolist()) == (4, 9.0, [1.0, 2.0])
    assert np.asarray(few.law.snr).tolist() == [3.0, 1.0]  # type: ignore[attr-defined]
    assert few.downlink is not None
    assert few.downlink.seconds.tolist() == [0.3, 0.1]
    assert few.needs.t.tolist() == [7.0, 5.0]
    with pytest.raises(fc.InputError, match="a view of no devices was asked for"):
        view.only(np.empty(0, np.int64))


def test_forced_devices_and_the_order_that_does_not_depend_on_the_arrays() -> None:
    assert view_of().forced.tolist() == []
    assert view_of(must_include=[False, True, True]).forced.tolist() == [1, 2]
    assert view_of(ids=[7, 3, 5]).order().tolist() == [1, 2, 0]
    tied = fc.RoundView([2.0, 1.0, 2.0], [3.0, 9.0, 1.0])
    assert tied.order().tolist() == [1, 2, 0]


def test_after_the_answers_nothing_begins_before_they_are_in() -> None:
    view = view_of(round_index=6, losses=[9.0, 9.0, 9.0], heard_round=[1, 1, 1], downlink=fc.Multicast(np.ones(3)))
    seen = view.with_answers(np.array([2, 0]), 3.5, losses=np.array([0.1, 0.2]))
    assert np.asarray(seen.losses).tolist() == [0.1, 0.2]
    assert np.asarray(seen.heard_round).tolist() == [6, 6]
    assert seen.downlink is not None
    assert seen.downlink.seconds.tolist() == [3.5, 3.5]
    assert seen.compute_s.tolist() == [7.0, 5.0]
    trained = view.with_answers(np.array([2, 0]), 0.0, norms=np.array([0.1, 0.2]))
    assert trained.compute_s.tolist() == [0.0, 0.0]  # who reports the norm of an update has trained
    assert trained.downlink is None

"""The one parser of `name:key=value`: every type of setting, both directions, and what is refused."""

from dataclasses import dataclass, field
from typing import Any, Literal, Optional

import pytest

from fedcell import settings
from fedcell.errors import InputError


@dataclass(frozen=True)
class Thing:
    k: int
    share: float = 0.5
    loud: bool = False
    colour: Literal["red", "blue"] = "red"
    span_s: tuple[float, float] = (0.0, 1.0)
    most: int | None = 4
    least: Optional[float] = None  # noqa: UP045  (people write it so)
    either: int | float | str = 0
    printed: str = "no"
    listed: list[str] = field(default_factory=lambda: ["a"])
    hidden: int = field(default=0, init=False)


@dataclass(frozen=True)
class Bare:
    pass


TABLE: dict[str, type[Any]] = {"a_thing": Thing, "bare": Bare}


def read(line: Any, **forms: Any) -> Any:
    return settings.parse("toy", line, TABLE, **forms)


@pytest.mark.parametrize(
    ("line", "thing"),
    [
        ("a_thing:k=2", Thing(2)),
        (" A-Thing : k = 2 , share = 1e-3,, ", Thing(2, share=0.001)),
        ("a_thing:k=2,loud=True,colour=blue", Thing(2, loud=True, colour="blue")),
        ("a_thing:k=2,span_s=3", Thing(2, span_s=(3.0, 3.0))),
        ("a_thing:k=2,span_s=0.5..3", Thing(2, span_s=(0.5, 3.0))),
        ("a_thing:k=2,most=None,least=none", Thing(2, most=None)),
        ("a_thing:k=2,most=3,least=3", Thing(2, most=3, least=3.0)),
        ("a_thing:k=2,either=1", Thing(2, either=1)),
        ("a_thing:k=2,either=1.5", Thing(2, either=1.5)),
        ("a_thing:k=2,either=x", Thing(2, either="x")),
        # "print" has "int" in it, and None is no value of a plain text.
        ("a_thing:k=2,printed=none", Thing(2, printed="none")),
        ("bare", Bare()),
        ("bare:", Bare()),
    ],
)
def test_a_line_becomes_a_value_of_the_fields_types(line: str, thing: Any) -> None:
    found = read(line)
    assert found == thing
    assert [type(value) for value in vars(found).values()] == [type(value) for value in vars(thing).values()]
    assert read(settings.write("a_thing" if isinstance(thing, Thing) else "bare", thing)) == thing


def test_only_what_differs_from_the_default_is_written() -> None:
    thing = Thing(2, share=3.0, loud=True, span_s=(1.5, 2.0), most=None)
    assert settings.write("a_thing", thing) == "a_thing:k=2,share=3,loud=True,span_s=1.5..2,most=None"


def test_values_may_stand_without_a_key_where_that_is_allowed() -> None:
    forms: dict[str, Any] = {"positional": ["k", "share"], "aliases": {"K": "k"}}
    assert read("a_thing:2,0.25", **forms) == Thing(2, share=0.25)
    assert read("a_thing:K=2,0.25,colour=blue", **forms) == Thing(2, share=0.25, colour="blue")
    with pytest.raises(InputError, match="'2' in toy 'a_thing' is not understood; write key=value"):
        read("a_thing:2")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("a_thin:k=2", r"unknown toy 'a_thin'; did you mean 'a_thing'\?"),
        ("", "unknown toy ''; choose from a_thing, bare"),
        (7, "toy is 7; give its name as text"),
        ("a_thing", r"toy 'a_thing' needs k; write a_thing:k=\.\.\."),
        ("a_thing:k=2,colr=red", r"toy 'a_thing' has no setting 'colr'; did you mean 'colour'\?"),
        ("a_thing:k=2,hidden=1", "toy 'a_thing' has no setting 'hidden'"),
        ("a_thing:k=2,k=2", "toy 'a_thing' is given k twice; give it once"),
        ("a_thing:k", "'k' in toy 'a_thing' is not understood; write key=value"),
        ("a_thing:k=2.5", "k of toy 'a_thing' is '2.5'; give a whole number"),
        (f"a_thing:k={'9' * 5000}", "k of toy 'a_thing' is '9+'; give a whole number"),
        ("a_thing:k=none", "k of toy 'a_thing' is 'none'; give a whole number"),
        ("a_thing:k=2,share=much", "share of toy 'a_thing' is 'much'; give a number"),
        ("a_thing:k=2,loud=1", "loud of toy 'a_thing' is '1'; give true or false"),
        ("a_thing:k=2,colour=bleu", r"colour of toy 'a_thing' is 'bleu'; did you mean 'blue'\?"),
        ("a_thing:k=2,span_s=1..x", r"span_s of toy 'a_thing' is '1\.\.x'; give a number, or two as least\.\.most"),
        ("a_thing:k=2,most=many", "most of toy 'a_thing' is 'many'; give a whole number"),
        ("bare:k=2", "toy 'bare' takes no settings, but 'k=2' was given; leave it out"),
    ],
)
def test_a_mistake_gets_one_sentence(line: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        read(line)


def test_what_is_given_already_cannot_be_set() -> None:
    assert settings.build(Thing, "toy", "a_thing", "share=1", given={"k": 5}) == Thing(5, share=1.0)
    with pytest.raises(InputError, match="toy 'a_thing' has no setting 'k'"):
        settings.build(Thing, "toy", "a_thing", "k=1", given={"k": 5})


def test_how_a_value_is_written_follows_from_its_type() -> None:
    found = {name: settings.scalar(hint) for name, hint in settings.type_hints(Thing).items()}
    assert found == {
        "k": int,
        "share": float,
        "loud": bool,
        "colour": str,
        "span_s": str,
        "most": int,
        "least": float,
        "either": int,
        "printed": str,
        "listed": str,
        "hidden": int,
    }

"""Who is given the lead, as members of a group come, go, and come back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from resilin.runtime.election import LeadAssignor

TOPIC = "cell.events"
PARTITIONS = frozenset(range(64))


class Cluster:
    """The one thing that an assignor asks of the cluster."""

    def partitions_for_topic(self, topic: str) -> frozenset[int]:
        assert topic == TOPIC
        return PARTITIONS


class Group:
    """The members of a group by id; each may be frozen: in the group or out, it hears nothing."""

    def __init__(self) -> None:
        self.members: dict[str, type[LeadAssignor]] = {}

    def with_members(self, *names: str) -> str:
        """Assign among these members, and return who leads."""
        for name in names:
            self.members.setdefault(name, LeadAssignor.for_one_member())
        assigned = LeadAssignor.assign(
            Cluster(), {name: self.members[name].metadata([TOPIC]) for name in names}
        )
        for name, assignment in assigned.items():
            self.members[name].on_assignment(assignment)
        return leader_of({name: len(each.partitions()) for name, each in assigned.items()})


def leader_of(partitions: Mapping[str, int]) -> str:
    (leader,) = [name for name, held in partitions.items() if held]
    assert partitions[leader] == len(PARTITIONS)
    return leader


@pytest.mark.parametrize("joining", ["a", "z"])
def test_whoever_joins_does_not_take_the_lead(joining: str) -> None:
    group = Group()
    assert group.with_members("m") == "m"
    assert group.with_members("m", joining) == "m"
    assert group.with_members("m", joining, "k") == "m"


def test_a_leader_that_left_is_followed_and_a_new_process_of_its_name_stands_by() -> None:
    group = Group()
    assert group.with_members("a", "b") == "a"
    assert group.with_members("b") == "b"
    del group.members["a"]
    assert group.with_members("a", "b") == "b"


def test_a_leader_that_was_away_comes_back_as_a_standby() -> None:
    group = Group()
    group.with_members("a", "b")
    group.with_members("b")
    # It was frozen: it still believes in its lead, of an earlier term.
    assert group.with_members("a", "b") == "b"
    assert group.with_members("a") == "a"
    assert group.with_members("a", "b") == "a"


def test_a_standby_that_never_led_follows_with_a_term_above_that_of_whom_it_followed() -> None:
    group = Group()
    assert group.with_members("a", "b", "c") == "a"
    assert group.with_members("b", "c") == "b"
    assert group.with_members("c") == "c"
    for returning in (("a", "b", "c"), ("a", "c"), ("b", "c"), ("a", "b", "c")):
        assert group.with_members(*returning) == "c"


def test_an_old_lead_that_nobody_followed_up_begins_a_new_term() -> None:
    group = Group()
    assert group.with_members("z") == "z"
    assert group.with_members("b", "c", "z") == "z"
    assert group.with_members("b", "c") == "b"
    # Both leaders were away; the first is back, beside one that heard of the second.
    assert group.with_members("c", "z") == "z"
    assert group.with_members("b", "c", "z") == "z"


def test_members_in_one_process_remember_for_themselves() -> None:
    one, two = LeadAssignor.for_one_member(), LeadAssignor.for_one_member()
    group = Group()
    group.members = {"one": one, "two": two}
    group.with_members("one")
    assert one.metadata([TOPIC]).user_data != two.metadata([TOPIC]).user_data

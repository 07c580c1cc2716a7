"""Properties `ducklake.*` are for the server: what it doesn't know is refused, not overlooked."""

from collections.abc import Mapping

import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError
from tests.support.client import Client, set_properties
from tests.support.foreign_catalog import new_foreign, register


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ducklake.absorb-row", r"did you mean ducklake\.absorb-rows\?"),
        ("ducklake.append_rebase", r"did you mean ducklake\.append-rebase\?"),
        ("DuckLake.History.Hold", r"did you mean ducklake\.history\.hold\?"),
        ("duckicelake.absorb-rows", r"did you mean ducklake\.absorb-rows\?"),
        ("ducklake.x", r"there are ducklake\.absorb-rows, ducklake\.append-rebase, "),
    ],
)
def test_unknown_property_is_refused_at_creation_and_later_and_the_nearest_is_named(
    client: Client, name: str, said: str
) -> None:
    with pytest.raises(InvalidRequestError, match=rf"no table property {name}; {said}"):
        client.create("u", properties={name: "5"})
    with pytest.raises(InvalidRequestError, match=said):
        client.create("u", properties={name: "5"}, stage_create=True)
    client.create()
    with pytest.raises(InvalidRequestError, match=said):
        client.commit(set_properties(**{name: "5"}))
    client.commit(set_properties(**{"absorb-rows": "5", "duckicelake.copied-from": "elsewhere"}))


def test_property_that_the_server_says_itself_may_be_sent_back(client: Client) -> None:
    client.create(properties={"ducklake.snapshot-id": "7"})
    before = properties(client)
    client.commit(set_properties(**before, comment="copied"))
    assert properties(client) == {**before, "comment": "copied"}


def test_unknown_property_that_a_table_came_with_stays_until_it_is_removed(client: Client, services: Services) -> None:
    unknown = "ducklake.of-tomorrow"
    other = new_foreign(f"{services.policy.data_zone}/elsewhere", properties={unknown: "1"})
    register(client, other.location, "t")
    client.commit(set_properties(**{unknown: "1", "comment": "still"}))
    assert properties(client).items() >= {unknown: "1", "comment": "still"}.items()
    with pytest.raises(InvalidRequestError, match=r"no table property ducklake\.of-tomorrow"):
        client.commit(set_properties(**{unknown: "2"}))
    client.commit({"requirements": [], "updates": [{"action": "remove-properties", "removals": [unknown]}]})
    assert unknown not in properties(client)


def properties(client: Client) -> Mapping[str, str]:
    found: Mapping[str, str] = client.metadata()["properties"]
    return found

"""Session policies, read back as IAM reads them."""

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckicelake.storage.policy import StoreFolder, parse_folder
from duckicelake.storage.session_policy import (
    MAX_POLICIES,
    MAX_POLICY_CHARACTERS,
    WRITE_ACTIONS,
    build_scopes,
    build_session_policy,
)

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/*?$#[]", exclude_categories=("Cc", "Cs")), min_size=1)
KEYS = st.lists(NAMES.filter(lambda name: name.strip(".")), min_size=1, max_size=4).map("/".join)


def allows(policy: str, action: str, bucket: str, key: str) -> bool:
    """Whether IAM would; its patterns are fnmatch's, but for brackets, which names here don't have."""
    resource = f"arn:aws:s3:::{bucket}" + ("" if action == "s3:ListBucket" else f"/{key}")
    for statement in json.loads(policy)["Statement"]:
        prefixes = many(statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix", "*"))
        if (
            action in many(statement["Action"])
            and any(fnmatchcase(resource, pattern) for pattern in many(statement["Resource"]))
            and any(fnmatchcase(key, pattern) for pattern in prefixes)
        ):
            return True
    return False


def many(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else value


def folders(*locations: str, write: bool = False) -> list[StoreFolder]:
    return [folder for location in locations if (folder := parse_folder(location, is_writable=write)) is not None]


def test_policy_of_a_writer_is_this() -> None:
    policy = build_session_policy(
        [*folders("s3a://b/data/ns/orders-1", write=True), *folders("s3://b/lake/ns/orders/")]
    )
    assert json.loads(policy) == {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": list(WRITE_ACTIONS), "Resource": "arn:aws:s3:::b/data/ns/orders-1/*"},
            {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/lake/ns/orders/*"},
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": "arn:aws:s3:::b",
                "Condition": {"StringLike": {"s3:prefix": ["data/ns/orders-1/*", "lake/ns/orders/*"]}},
            },
        ],
    }


def test_policy_of_another_partition_names_its_resources() -> None:
    policy = build_session_policy(folders("s3://b/t"), partition="aws-cn")
    assert "arn:aws-cn:s3:::b/t/*" in policy
    assert "arn:aws:" not in policy


@given(KEYS, KEYS, st.booleans())
def test_policy_reaches_what_lies_below_the_folder_and_nothing_beside_it(key: str, other: str, write: bool) -> None:
    policy = build_session_policy(folders(f"s3://b/{key}", write=write))
    assert policy.isascii()
    assert allows(policy, "s3:GetObject", "b", f"{key}/{other}")
    assert allows(policy, "s3:ListBucket", "b", f"{key}/")
    assert allows(policy, "s3:PutObject", "b", f"{key}/{other}") is write
    for outside in (f"{key}2/{other}", key, other):
        is_inside = outside.startswith(f"{key}/")
        for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket"):
            assert allows(policy, action, "b", outside) <= is_inside
    assert not allows(policy, "s3:GetObject", "c", f"{key}/{other}")
    assert not allows(policy, "s3:ListBucket", "b", "")


@pytest.mark.parametrize(
    "location",
    ["s3://b/a*", "s3://b/a?", "s3://b/${aws:username}", "s3://b/$x", "file:///x", "/x", "s3://b/a/../c", "x"],
)
def test_folder_that_no_policy_can_name_has_none(location: str) -> None:
    assert parse_folder(location) is None


def test_folders_share_a_policy_while_it_is_short_enough() -> None:
    given = folders(*(f"s3://bucket/warehouse/data/{number:03}-{'x' * 60}" for number in range(12)))
    scopes, uncovered = build_scopes(given)
    assert uncovered == ()
    assert [folder for scope in scopes for folder in scope.folders] == given
    assert 1 < len(scopes) < 12
    assert all(len(scope.policy) <= MAX_POLICY_CHARACTERS for scope in scopes)


def test_folders_beyond_the_most_policies_and_overlong_ones_are_uncovered() -> None:
    long = folders(f"s3://b/{'y' * 1000}")
    many_more = folders(*(f"s3://bucket/{number:03}-{'x' * 400}" for number in range(MAX_POLICIES * 2 + 8)))
    scopes, uncovered = build_scopes([*long, *many_more])
    assert len(scopes) == MAX_POLICIES
    assert uncovered[0] == long[0]
    assert {*uncovered, *(folder for scope in scopes for folder in scope.folders)} == {*long, *many_more}


def test_folder_holds_by_whole_segments() -> None:
    (folder,) = folders("s3://b/orders")
    assert folder.holds("b", "orders/x")
    assert not folder.holds("b", "orders2/x")
    assert not folder.holds("b", "orders/")
    assert not folder.holds("c", "orders/x")


def test_policy_allows_the_key_that_encrypts_the_objects_alone() -> None:
    key = "arn:aws:kms:eu-west-1:111122223333:key/1"
    ((scope,), uncovered) = build_scopes([StoreFolder("s3://b/t/", is_writable=True)], kms_key=key)
    statement = json.loads(scope.policy)["Statement"][-1]
    assert statement == {"Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": key}
    assert uncovered == ()

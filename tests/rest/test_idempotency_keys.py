"""The keys that requests carry which may be sent again."""

from duckicelake.rest.http import create_request_key


def test_keys_are_of_version_7_and_grow_with_time() -> None:
    keys = [create_request_key() for _ in range(1000)]
    assert {(key.version, key.variant) for key in keys} == {(7, "specified in RFC 4122")}
    assert len(set(keys)) == 1000
    assert [key.int >> 80 for key in keys] == sorted(key.int >> 80 for key in keys)

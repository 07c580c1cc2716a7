"""The certificate and key, as they are checked at the start."""

from pathlib import Path

import pytest

from duckicelake.cli.serve.edge import check_certificate
from duckicelake.errors import InvalidSettingsError
from tests.support.certificates import make_certificate


def refused(certificate: Path, key: Path) -> str:
    with pytest.raises(InvalidSettingsError) as caught:
        check_certificate(certificate, key)
    return str(caught.value)


def test_certificate_and_its_key_are_fine(tmp_path: Path) -> None:
    check_certificate(*make_certificate(tmp_path))


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    assert refused(tmp_path / "gone.pem", key) == f"{tmp_path}/gone.pem can't be read: No such file or directory"
    assert refused(certificate, tmp_path).startswith(f"{tmp_path} can't be read")


def test_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path)
    _, other = make_certificate(tmp_path, "other")
    assert refused(certificate, other) == (
        f"the key in {other} isn't that of the first certificate in {certificate}, which must be the server's"
    )


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    assert "are no certificate and key in PEM form" in refused(key, key)
    certificate.write_text("hello")
    assert "are no certificate and key in PEM form" in refused(certificate, key)


def test_encrypted_key_is_refused_and_no_one_is_asked_for_a_passphrase(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, passphrase=b"secret")
    assert refused(certificate, key) == f"the key in {key} is encrypted; give one without a passphrase"


@pytest.mark.parametrize(("days", "said"), [((-30, -1), "has expired on 20"), ((1, 30), "isn't valid before 20")])
def test_certificate_of_another_time_is_refused(tmp_path: Path, days: tuple[int, int], said: str) -> None:
    assert said in refused(*make_certificate(tmp_path, days=days))

"""Encryption keys of a version 3 table (table spec, "Encryption Keys"); key metadata is base64 text and stays so."""

from pydantic import AliasChoices, Field

from duckicelake.iceberg.model import SpecModel


class EncryptedKey(SpecModel):
    """`key-metadata`, the spelling of the spec's appendix, is read too."""

    key_id: str
    encrypted_key_metadata: str = Field(
        validation_alias=AliasChoices("encrypted-key-metadata", "key-metadata", "encrypted_key_metadata")
    )
    encrypted_by_id: str | None = None
    properties: dict[str, str] | None = None

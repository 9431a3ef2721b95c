"""Secrets of users in the database: encrypted, so that a copy of the database without the secret key is of no use.

The cipher's key is derived (HKDF, SHA-256) from the installation's secret key and a text that names row and use:
a ciphertext cannot be read from another row.
"""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.views.decorators.debug import sensitive_variables


class SecretUnreadable(ValueError):
    """The installation's secret key has changed since the secret was stored."""

    def __init__(self) -> None:
        super().__init__("Its key cannot be read: the installation's secret key has changed. Set it again.")


def _cipher(row: str) -> Fernet:
    key = HKDF(SHA256(), 32, salt=None, info=row.encode()).derive(settings.SECRET_KEY.encode())
    return Fernet(base64.urlsafe_b64encode(key))


@sensitive_variables("text")
def encrypt(row: str, text: str) -> str:
    """`row` names the row and the use, such as "key of judge 7": part of the key, so it may never change."""
    return _cipher(row).encrypt(text.encode()).decode()


def decrypt(row: str, ciphertext: str) -> str:
    """Error: SecretUnreadable."""
    try:
        return _cipher(row).decrypt(ciphertext.encode()).decode()
    except InvalidToken:
        raise SecretUnreadable from None

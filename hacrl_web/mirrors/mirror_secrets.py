"""The key or password of a mirror: stored encrypted, shown to nobody, given to the process that sends.

As of Hub tokens, the cipher's key is derived from the installation's secret key and the row, so that a ciphertext is of
no use without the key, or in another row.
"""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.views.decorators.debug import sensitive_variables

from hacrl_web.mirrors.models import Mirror


class SecretUnreadable(ValueError):
    """The installation's secret key has changed since the secret was stored."""

    def __init__(self) -> None:
        super().__init__("Its key cannot be read: the installation's secret key has changed. Set it again.")


def _cipher(mirror: Mirror) -> Fernet:
    key = HKDF(SHA256(), 32, salt=None, info=f"secret of mirror {mirror.pk}".encode())
    return Fernet(base64.urlsafe_b64encode(key.derive(settings.SECRET_KEY.encode())))


@sensitive_variables("text")
def encrypted(mirror: Mirror, text: str) -> str:
    """For the column `ciphertext` of a stored row; empty for an empty text."""
    return _cipher(mirror).encrypt(text.encode()).decode() if text else ""


def decrypted(mirror: Mirror) -> str:
    """Error: SecretUnreadable."""
    try:
        return _cipher(mirror).decrypt(mirror.ciphertext.encode()).decode() if mirror.ciphertext else ""
    except InvalidToken:
        raise SecretUnreadable from None

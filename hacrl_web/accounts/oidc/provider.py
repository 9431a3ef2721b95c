"""The provider: its endpoints, from its discovery document, and the claims of a person that it confirms.

Authlib makes the address of the way there, exchanges the code and verifies the ID token: signature, times, issuer,
audience, authorized party, nonce and the access token's hash. Here are the checks that it leaves to its users.
"""

from __future__ import annotations

import logging
from typing import Any

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.django_client import DjangoIntegration, DjangoOAuth2App
from django.core.cache import cache
from joserfc.errors import JoseError

from hacrl_web.ops.oidc_settings import OidcProvider

logger = logging.getLogger(__name__)
TIMEOUT_S = (3, 10)  # to connect, and between two packets
DISCOVERY_LIFETIME_S = 3600
FAILURE_LIFETIME_S = 30  # a provider that fails is not asked again by each visitor
MAX_SUBJECT = 255  # characters: OpenID Connect Core, 2
LEEWAY_S = 60  # between the clocks of the provider and of this machine
ALGORITHMS = ("RS256", "ES256", "RS384", "RS512", "ES384", "ES512")  # asymmetric; the first that the provider has
# What a broken, foreign or forged answer raises in the libraries and here.
BAD_ANSWER = (AuthlibBaseError, JoseError, LookupError, TypeError, AttributeError, ValueError)


class SignInRefused(Exception):
    """A sign-in at the provider fails; the text says why and what to do. status: of the HTTP answer."""

    def __init__(self, text: str, status: int = 403) -> None:
        super().__init__(text)
        self.status = status


def client_of(provider: OidcProvider) -> DjangoOAuth2App:
    """Make this installation's client. Each web process reads the provider's description once an hour; a failure
    counts for FAILURE_LIFETIME_S. Error: SignInRefused (502)."""
    key = f"oidc-{provider.issuer}"
    answer: dict[str, Any] | str | None = cache.get(key)  # a text: why it failed
    if answer is None:
        try:
            answer = _discover(provider)
        except SignInRefused as refusal:
            cache.set(key, str(refusal), FAILURE_LIFETIME_S)
            raise
        cache.set(key, answer, DISCOVERY_LIFETIME_S)
    if isinstance(answer, str):
        raise SignInRefused(answer, 502)
    return make_client(provider, answer)


def make_client(provider: OidcProvider, metadata: dict[str, Any]) -> DjangoOAuth2App:
    """Make the client of a provider. metadata: as `_metadata` returns it."""
    options = {
        "scope": provider.scopes,
        "code_challenge_method": "S256",
        "token_endpoint_auth_method": metadata["auth_method"],
        "default_timeout": TIMEOUT_S,
    }
    names = {"client_id": provider.client_id, "client_secret": provider.client_secret, "client_kwargs": options}
    return DjangoOAuth2App(DjangoIntegration("hacrl"), "hacrl", **names, **metadata)


def _discover(provider: OidcProvider) -> dict[str, Any]:
    try:
        answer = requests.get(f"{provider.issuer}/.well-known/openid-configuration", timeout=TIMEOUT_S)
        answer.raise_for_status()
        return _metadata(provider, answer.json())
    except requests.RequestException as error:
        logger.warning("The sign-in provider %s does not answer: %s", provider.issuer, error)
        raise unreachable(provider) from error
    except BAD_ANSWER as error:
        logger.warning("The discovery document of %s cannot be used: %s", provider.issuer, error)
        raise SignInRefused(
            f"{provider.name} does not describe itself as HACRL_OIDC_ISSUER says: ask your administrator.", 502
        ) from error


def _metadata(provider: OidcProvider, document: dict[str, Any]) -> dict[str, Any]:
    """Keep the used fields of a discovery document alone. Errors: of BAD_ANSWER."""
    if str(document["issuer"]).rstrip("/") != provider.issuer:
        raise ValueError(f"its issuer is {document['issuer']}")
    offered = document.get("id_token_signing_alg_values_supported") or ["RS256"]
    algorithm = next((one for one in ALGORITHMS if one in offered), "")
    if not algorithm:
        raise ValueError(f"it signs with {offered} only; known are {', '.join(ALGORITHMS)}")
    methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    needed = ("issuer", "authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")
    return {name: str(document[name]) for name in needed} | {
        "end_session_endpoint": str(document.get("end_session_endpoint") or ""),
        "id_token_signing_alg_values_supported": [algorithm],
        "auth_method": "client_secret_post" if "client_secret_post" in methods else "client_secret_basic",
    }


def unreachable(provider: OidcProvider) -> SignInRefused:
    return SignInRefused(f"{provider.name} does not answer: try again in a minute, or log in with a password.", 502)


def verified_claims(
    provider: OidcProvider, client: DjangoOAuth2App, code: str, begun: dict[str, Any]
) -> dict[str, Any]:
    """The claims of the person who comes back with a code, and the `id_token`. Error: SignInRefused.

    begun: what `create_authorization_url` returned on the way there, and its `redirect_uri`.
    """
    try:
        token = client.fetch_access_token(begun["redirect_uri"], code=code, code_verifier=begun["code_verifier"])
        expected = {"iss": {"value": client.server_metadata["issuer"]}, "aud": {"value": provider.client_id}}
        claims = client.parse_id_token(token, begun["nonce"], claims_options=expected, leeway=LEEWAY_S)
        user_info = client.userinfo(token=token)
        subject = claims["sub"]
        if not (0 < len(subject) <= MAX_SUBJECT and subject.isprintable()):
            raise ValueError("The token has no subject of at most 255 characters.")
        if user_info["sub"] != subject:
            raise ValueError("Token and user information are of two people.")
        return {**claims, **user_info, "id_token": token["id_token"]}
    except (requests.ConnectionError, requests.Timeout) as error:
        logger.warning("Sign-in at %s: %s", provider.issuer, error)
        raise unreachable(provider) from error
    except (requests.RequestException, *BAD_ANSWER) as error:
        logger.warning("Sign-in at %s: %s", provider.issuer, error)
        raise SignInRefused(f"{provider.name} did not confirm this sign-in: start again.") from error

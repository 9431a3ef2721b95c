"""The provider's endpoints, from its discovery document, and its answers, verified.

mozilla-django-oidc exchanges the code and compares the nonce. Here are the checks that it leaves to its users: issuer,
audience, expiry, and that token and user information are of one person.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import jwt
import requests
from django.core.cache import cache
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from hacrl_web.ops.oidc_settings import OidcProvider

logger = logging.getLogger(__name__)
TIMEOUT_S = (3, 10)  # to connect, and between two packets
DISCOVERY_LIFETIME_S = 3600
FAILURE_LIFETIME_S = 30  # a provider that fails is not asked again by each visitor
MAX_SUBJECT = 255  # characters: OpenID Connect Core, 2
LEEWAY_S = 60  # between the clocks of the provider and of this machine
ALGORITHMS = ("RS256", "ES256", "RS384", "RS512", "ES384", "ES512")  # asymmetric; the first that the provider has
CALLBACK = "accounts:oidc_callback"
# What a broken, foreign or forged answer raises in the library and here.
BAD_ANSWER = (jwt.PyJWTError, SuspiciousOperation, LookupError, TypeError, AttributeError, ValueError)


class SignInRefused(Exception):
    """A sign-in at the provider fails; the text says why and what to do. status: of the HTTP answer."""

    def __init__(self, text: str, status: int = 403) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Endpoints:
    """Addresses of a provider. end_session: empty if it has none."""

    authorization: str
    token: str
    user_info: str
    keys: str
    end_session: str
    algorithm: str
    has_basic_only: bool  # the client's secret goes into a header, not into the form


def endpoints_of(provider: OidcProvider) -> Endpoints:
    """Read once an hour by each web process; a failure counts for FAILURE_LIFETIME_S. Error: SignInRefused (502)."""
    key = f"oidc-{provider.issuer}"
    answer: Endpoints | str | None = cache.get(key)  # a text: why it failed
    if answer is None:
        try:
            answer = _discover(provider)
        except SignInRefused as refusal:
            cache.set(key, str(refusal), FAILURE_LIFETIME_S)
            raise
        cache.set(key, answer, DISCOVERY_LIFETIME_S)
    if isinstance(answer, str):
        raise SignInRefused(answer, 502)
    return answer


def _discover(provider: OidcProvider) -> Endpoints:
    try:
        answer = requests.get(f"{provider.issuer}/.well-known/openid-configuration", timeout=TIMEOUT_S)
        answer.raise_for_status()
        return _endpoints(provider, answer.json())
    except requests.RequestException as error:
        logger.warning("The sign-in provider %s does not answer: %s", provider.issuer, error)
        raise unreachable(provider) from error
    except BAD_ANSWER as error:
        logger.warning("The discovery document of %s cannot be used: %s", provider.issuer, error)
        raise SignInRefused(
            f"{provider.name} does not describe itself as HACRL_OIDC_ISSUER says: ask your administrator.", 502
        ) from error


def _endpoints(provider: OidcProvider, document: dict[str, Any]) -> Endpoints:
    issuer = str(document["issuer"])
    if issuer.rstrip("/") != provider.issuer:
        raise ValueError(f"its issuer is {issuer}")
    offered = document.get("id_token_signing_alg_values_supported") or ["RS256"]
    methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    algorithm = next((one for one in ALGORITHMS if one in offered), "")
    if not algorithm:
        raise ValueError(f"it signs with {offered} only; known are {', '.join(ALGORITHMS)}")
    return Endpoints(
        authorization=str(document["authorization_endpoint"]),
        token=str(document["token_endpoint"]),
        user_info=str(document["userinfo_endpoint"]),
        keys=str(document["jwks_uri"]),
        end_session=str(document.get("end_session_endpoint") or ""),
        algorithm=algorithm,
        has_basic_only="client_secret_post" not in methods,
    )


def unreachable(provider: OidcProvider) -> SignInRefused:
    return SignInRefused(f"{provider.name} does not answer: try again in a minute, or log in with a password.", 502)


class ProviderBackend(OIDCAuthenticationBackend):
    """Exchanges a code for verified claims. Only the callback uses it; it is not listed in AUTHENTICATION_BACKENDS."""

    def __init__(self, provider: OidcProvider, endpoints: Endpoints) -> None:
        self.provider = provider
        self.claims: dict[str, Any] = {}
        self.values: dict[str, Any] = {
            "OIDC_OP_TOKEN_ENDPOINT": endpoints.token,
            "OIDC_OP_USER_ENDPOINT": endpoints.user_info,
            "OIDC_OP_JWKS_ENDPOINT": endpoints.keys,
            "OIDC_RP_CLIENT_ID": provider.client_id,
            "OIDC_RP_CLIENT_SECRET": provider.client_secret,
            "OIDC_RP_SIGN_ALGO": endpoints.algorithm,
            "OIDC_TOKEN_USE_BASIC_AUTH": endpoints.has_basic_only,
            "OIDC_AUTHENTICATION_CALLBACK_URL": CALLBACK,
            "OIDC_TIMEOUT": TIMEOUT_S,
        }
        super().__init__()

    def get_settings(self, attr: str, *default: Any) -> Any:
        """In place of Django settings, which cannot know the endpoints when a process starts."""
        return self.values.get(attr, *default) if default else self.values[attr]

    def verified_claims(self, request: HttpRequest, nonce: str, code_verifier: str) -> dict[str, Any]:
        """The claims of the person who comes back with a code. Error: SignInRefused."""
        try:
            self.authenticate(request, nonce=nonce, code_verifier=code_verifier)
        except (requests.ConnectionError, requests.Timeout) as error:
            logger.warning("Sign-in at %s: %s", self.provider.issuer, error)
            raise unreachable(self.provider) from error
        except (requests.RequestException, *BAD_ANSWER) as error:
            logger.warning("Sign-in at %s: %s", self.provider.issuer, error)
            self.claims = {}
        if not self.claims:
            raise SignInRefused(f"{self.provider.name} did not confirm this sign-in: start again.")
        return self.claims

    def verify_token(self, token: str, **kwargs: Any) -> dict[str, Any]:
        payload: dict[str, Any] = super().verify_token(token, **kwargs)
        if "nonce" in kwargs:  # else it is user information, which has neither audience nor expiry
            self._check_id_token(payload)
        return payload

    def get_payload_data(self, token: str, key: Any) -> dict[str, Any]:
        """The payload, after the checks of signature, algorithm and times. Errors: of BAD_ANSWER."""
        # verify_aud: _check_id_token compares it.
        payload: dict[str, Any] = jwt.decode(
            token, key, algorithms=[self.OIDC_RP_SIGN_ALGO], leeway=LEEWAY_S, options={"verify_aud": False}
        )
        return payload

    def _check_id_token(self, payload: dict[str, Any]) -> None:
        """OpenID Connect Core, 3.1.3.7, points 2 to 5 and 9. Error: SuspiciousOperation."""
        audience = payload.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if str(payload.get("iss", "")).rstrip("/") != self.provider.issuer:
            raise SuspiciousOperation(f"The token is of another issuer: {payload.get('iss')!r}")
        if self.provider.client_id not in audiences:
            raise SuspiciousOperation(f"The token is for another client: {audience!r}")
        if payload.get("azp", self.provider.client_id) != self.provider.client_id:
            raise SuspiciousOperation(f"The token was given to another client: {payload['azp']!r}")
        if len(audiences) > 1 and "azp" not in payload:
            raise SuspiciousOperation("The token is for several clients and does not say to which it was given.")
        subject = payload.get("sub")
        is_subject = isinstance(subject, str) and 0 < len(subject) <= MAX_SUBJECT and subject.isprintable()
        if "exp" not in payload or not is_subject:
            raise SuspiciousOperation("The token has no expiry, or no subject of at most 255 characters.")

    def retrieve_matching_jwk(self, token: str) -> jwt.PyJWK:
        """The provider's key that signed the token; a token need not name it if there is one. Errors: of BAD_ANSWER."""
        answer = requests.get(self.OIDC_OP_JWKS_ENDPOINT, timeout=TIMEOUT_S)
        answer.raise_for_status()
        header = jwt.get_unverified_header(token)
        keys = [
            key
            for key in answer.json()["keys"]
            if key.get("use", "sig") == "sig" and key.get("alg", header["alg"]) == header["alg"]
            if header.get("kid") in (None, key.get("kid"))
        ]
        if len(keys) != 1:
            raise SuspiciousOperation(f"{len(keys)} keys of the provider fit the token's header {header}")
        return jwt.PyJWK(keys[0], header["alg"])

    def store_tokens(self, access_token: str, id_token: str) -> None:
        """The session keeps none of them but in its address for signing out."""

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> None:
        """Keeps the claims; accounts.py finds the user."""
        user_info = self.get_userinfo(access_token, id_token, payload)
        if user_info.get("sub") != payload["sub"]:
            raise SuspiciousOperation("Token and user information are of two people.")
        self.claims = {**payload, **user_info, "id_token": id_token}

"""Pages for logging in, by password or one-time link, and out, and for the user's own password."""

from __future__ import annotations

import hashlib
import ipaddress
import unicodedata
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView as DjangoLoginView
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from hacrl_web.accounts.login.forms import FirstPasswordForm, LoginForm, NextPasswordForm
from hacrl_web.accounts.login.sessions import end_sessions
from hacrl_web.accounts.models import LOGIN_WINDOW, MAX_ADDRESS_TRIES, MAX_LOGIN_TRIES, ApiToken, LoginLink, LoginTry
from hacrl_web.web.errors import FieldErrors

LEAVING = "sign_out_at_provider"  # key in a session: the address that ends the person's session at the provider
BACKEND = "django.contrib.auth.backends.ModelBackend"


def limits_of(username: str, address: str) -> dict[str, int]:
    """How many tries are allowed, by key: of this name from this address, and of the address.

    Every spelling that a person would read as the same user name is one name; a customer's network of IPv6 addresses
    (/64) is one address.
    """
    folded = unicodedata.normalize("NFKC", username).strip().casefold()
    try:
        parsed = ipaddress.ip_address(address)
        if isinstance(parsed, ipaddress.IPv6Address):
            address = str(parsed.ipv4_mapped or ipaddress.ip_network((int(parsed), 64), strict=False))
    except ValueError:  # of a Unix socket: no address
        pass
    keys = {f"{folded}\n{address}": MAX_LOGIN_TRIES, f"\n{address}": MAX_ADDRESS_TRIES}
    return {hashlib.sha256(key.encode("utf-8", "replace")).hexdigest(): limit for key, limit in keys.items()}


@method_decorator(login_not_required, name="dispatch")
class LoginView(DjangoLoginView):
    """Django's password form, with a limit on failed logins."""

    template_name = "accounts/login/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True
    http_method_names = ["get", "head", "post"]

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        return super().get_context_data(provider=settings.OIDC, **context)

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        limits = limits_of(request.POST.get("username", ""), request.META.get("REMOTE_ADDR", ""))
        self.name_key, self.tries = next(iter(limits)), LoginTry.objects.admit(limits)
        if self.tries:
            return super().post(request, *args, **kwargs)
        minutes = int(LOGIN_WINDOW.total_seconds() // 60)
        refusal = f"Too many tries. Wait {minutes} minutes, or ask for a login link."
        context = {"form": LoginForm(request), "refusal": refusal, "next": self.get_redirect_url()}
        context["provider"] = settings.OIDC
        response = render(request, self.template_name, context, status=429)
        response["Retry-After"] = str(minutes * 60)
        return response

    def form_valid(self, form: LoginForm) -> HttpResponse:
        # Of the address this try alone: whoever has an account could else go on with other names.
        LoginTry.objects.filter(Q(key=self.name_key) | Q(pk__in=[one.pk for one in self.tries])).delete()
        return super().form_valid(form)

    def form_invalid(self, form: LoginForm) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=422)


def redirect_to(request: HttpRequest, target: str) -> HttpResponse:
    """Redirect to an address that the visitor sent, if it is on this host; else to the home page.

    Not Django's `redirect`, which reads a text without a slash as the name of a view.
    """
    is_ours = url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure())
    return HttpResponseRedirect(target if is_ours else reverse("home"))


@login_not_required
@require_http_methods(["GET", "HEAD", "POST"])
def login_by_link(request: HttpRequest, token: str) -> HttpResponse:
    """GET shows a button and does not use the link up, because mail and chat programs open links; POST logs in."""
    if request.method == "POST":
        user = LoginLink.objects.use(token)
        if user is not None:
            login(request, user, backend=BACKEND)
            return redirect_to(request, request.GET.get("next", ""))
    elif LoginLink.objects.usable(token).exists():
        return render(request, "accounts/login/link.html", {"is_usable": True})
    return render(request, "accounts/login/link.html", {"is_usable": False}, status=410)


@require_POST
def log_out(request: HttpRequest) -> HttpResponse:
    """End this session; a person who signed in at the provider goes on to it, to be signed out there too.

    By a page that moves on, not by a redirect: browsers count that as part of the form, which may go to this host only.
    """
    address = request.session.get(LEAVING, "")
    logout(request)
    if address and settings.OIDC is not None:
        return render(request, "accounts/login/leaving.html", {"address": address, "provider": settings.OIDC})
    return redirect("accounts:login")


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def account(request: HttpRequest) -> HttpResponse:
    """Set or change the user's password, and link an account at the sign-in provider.

    Whoever signs in at the provider sets no password here: the provider's rules for passwords would not apply to it.
    """
    user = request.user
    context = {"provider": settings.OIDC, "num_tokens": ApiToken.objects.visible_to(user).usable().count()}
    if settings.OIDC is not None and user.provider_account and not user.has_usable_password():
        if request.method == "POST":
            raise FieldErrors.single("forbidden", "You sign in at a provider: set your password there.", status=403)
        return render(request, "accounts/login/account.html", context)
    form_class = NextPasswordForm if user.has_usable_password() else FirstPasswordForm
    form = form_class(user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        form.save()
        update_session_auth_hash(request, user)  # Django ends the sessions of the old password
        end_sessions(user, but=request.session.session_key)
        messages.success(request, "Your password is set.")
        return redirect("accounts:account")
    context["form"] = form
    return render(request, "accounts/login/account.html", context, status=422 if form.errors else 200)


@require_POST
def log_out_everywhere(request: HttpRequest) -> HttpResponse:
    """End all sessions of the user, this one included. `tokens`: also revoke the API tokens, which are not sessions."""
    user = request.user
    if request.POST.get("tokens"):
        ApiToken.objects.visible_to(user).revoke()
    end_sessions(user)
    request.session.flush()
    return redirect("accounts:login")

"""Pages of logging in, by password or one-time link, and of one's own account."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView as DjangoLoginView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from hacrl_web.accounts.login.forms import FirstPasswordForm, LoginForm, NextPasswordForm
from hacrl_web.accounts.login.sessions import end_sessions
from hacrl_web.accounts.login.throttle import WINDOW, forget, may_try, throttle_key
from hacrl_web.accounts.models import LoginLink, User

BACKEND = "django.contrib.auth.backends.ModelBackend"


@method_decorator(login_not_required, name="dispatch")
class LoginView(DjangoLoginView):
    """Password form; Django's view checks `next`, this one counts the tries."""

    template_name = "accounts/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True
    http_method_names = ["get", "head", "post"]

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        self.key = throttle_key(request.POST.get("username", ""), request.META.get("REMOTE_ADDR", ""))
        if may_try(self.key):
            return super().post(request, *args, **kwargs)
        minutes = int(WINDOW.total_seconds() // 60)
        refusal = f"Too many tries. Wait {minutes} minutes, or ask for a login link."
        context = {"form": LoginForm(request), "refusal": refusal, "next": self.get_redirect_url()}
        response = render(request, self.template_name, context, status=429)
        response["Retry-After"] = str(minutes * 60)
        return response

    def form_valid(self, form: LoginForm) -> HttpResponse:
        forget(self.key)
        return super().form_valid(form)

    def form_invalid(self, form: LoginForm) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=422)


def redirect_to(request: HttpRequest, target: str) -> HttpResponse:
    """To the address that a visitor named, if it is one of this host's; else home.

    Not by Django's `redirect`: it takes a text without a slash for the name of a view, and there may be none.
    """
    is_ours = url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure())
    return HttpResponseRedirect(target if is_ours else reverse("home"))


@login_not_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def login_by_link(request: HttpRequest, token: str) -> HttpResponse:
    """GET shows one button and spends nothing, for mail and chat programs open links; POST logs in."""
    if request.method == "POST":
        user = LoginLink.objects.use(token)
        if user is not None:
            login(request, user, backend=BACKEND)
            return redirect_to(request, request.GET.get("next", ""))
    elif LoginLink.objects.usable(token).exists():
        return render(request, "accounts/login_link.html", {"is_usable": True})
    return render(request, "accounts/login_link.html", {"is_usable": False}, status=410)


@require_POST
def log_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("accounts:login")


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def account(request: HttpRequest) -> HttpResponse:
    """The user's own page: set or change the password."""
    user = cast(User, request.user)
    form_class = NextPasswordForm if user.has_usable_password() else FirstPasswordForm
    form = form_class(user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        form.save()
        update_session_auth_hash(request, user)  # the other sessions end with the password that they were opened with
        end_sessions(user, but=request.session.session_key)
        messages.success(request, "Your password is set.")
        return redirect("accounts:account")
    return render(request, "accounts/account.html", {"form": form}, status=422 if form.errors else 200)

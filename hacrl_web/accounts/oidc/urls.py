"""Addresses of sign-in at the provider, and of the link between accounts."""

from django.urls import path

from hacrl_web.accounts.oidc import views

app_name = "oidc"
urlpatterns = [
    path("login/oidc", views.sign_in, name="start"),
    path("login/oidc/callback", views.finish_sign_in, name="callback"),
    path("account/link", views.link_account, name="link"),
    path("account/unlink", views.unlink_account, name="unlink"),
]

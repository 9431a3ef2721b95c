"""Addresses of logging in and out."""

from django.urls import path

from hacrl_web.accounts import views

app_name = "accounts"
urlpatterns = [
    path("login", views.Login.as_view(), name="login"),
    path("login/<str:token>", views.login_by_link, name="login_link"),
    path("logout", views.log_out, name="logout"),
    path("account", views.account, name="account"),
]

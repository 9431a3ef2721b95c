"""Addresses of the leaderboard."""

from django.urls import path

from hacrl_web.leaderboard import views

app_name = "leaderboard"

urlpatterns = [path("", views.index, name="index")]

"""Addresses of the docs."""

from django.urls import path

from hacrl_web.docs import views

app_name = "docs"
urlpatterns = [
    path("", views.show, name="index"),
    path("search", views.search, name="search"),
    path("<slug:slug>", views.show, name="page"),
]

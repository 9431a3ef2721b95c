"""Addresses of the docs."""

from django.urls import path

from hacrl_web.docs import views

app_name = "docs"
urlpatterns = [
    path("", views.show_page, name="index"),
    path("search", views.search_page, name="search"),
    path("<slug:slug>", views.show_page, name="page"),
]

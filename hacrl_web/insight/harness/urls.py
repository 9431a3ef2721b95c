"""Addresses of evaluations by lm-evaluation-harness."""

from django.urls import path

from hacrl_web.insight.harness import views

app_name = "harness"
urlpatterns = [path("evaluate/harness", views.evaluate_by_harness, name="evaluate")]

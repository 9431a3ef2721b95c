"""Addresses of quotas and retention."""

from django.urls import path

from hacrl_web.runs.limits import views

app_name = "limits"
urlpatterns = [
    path("projects/<int:project_id>/quota", views.quota_change, name="quota_change"),
    path("projects/<int:project_id>/retention", views.retention_change, name="retention_change"),
]

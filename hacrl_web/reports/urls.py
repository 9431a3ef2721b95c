"""Addresses of reports."""

from django.urls import path

from hacrl_web.reports import views

app_name = "reports"
urlpatterns = [
    path("reports/", views.report_list, name="report_list"),
    path("reports/new", views.report_create, name="report_create"),
    path("reports/<int:report_id>", views.report_page, name="report"),
    path("reports/<int:report_id>/panels/<int:number>", views.report_panel, name="report_panel"),
    path("reports/<int:report_id>/edit", views.report_edit, name="report_edit"),
    path("reports/<int:report_id>/delete", views.report_delete, name="report_delete"),
    path("reports/<int:report_id>/text.md", views.report_text, name="report_text"),
]

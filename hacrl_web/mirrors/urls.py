"""Addresses of mirrors."""

from django.urls import path

from hacrl_web.mirrors import views

app_name = "mirrors"
urlpatterns = [
    path("projects/<int:project_id>/mirrors", views.project_mirrors, name="project_mirrors"),
    path("projects/<int:project_id>/mirrors/<int:mirror_id>", views.mirror_change, name="mirror_change"),
    path("runs/<uuid:run_id>/mirrors", views.run_mirrors, name="run_mirrors"),
    path("runs/<uuid:run_id>/mirrors/<int:mirror_id>", views.run_mirror_choose, name="run_mirror_choose"),
]

"""Addresses of links and of what they open."""

from django.urls import path

from hacrl_web.sharing import views

app_name = "sharing"
urlpatterns = [
    path("share", views.share, name="share"),
    path("share/file", views.share_file, name="file"),
    path("share/links/<int:link_id>/revoke", views.revoke_link, name="revoke"),
    path("shared/<str:token>", views.shared, name="shared"),
    path("projects/<int:project_id>/sharing", views.project_links, name="project"),
]

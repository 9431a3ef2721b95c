"""Addresses of login and logout, account, sessions, projects, people, audit log and tokens."""

from django.urls import path
from django.views.generic import RedirectView

from hacrl_web.accounts.login import views
from hacrl_web.accounts.people import audit_views
from hacrl_web.accounts.people import views as people_views
from hacrl_web.accounts.tokens import views as token_views

app_name = "accounts"
urlpatterns = [
    path("login", views.LoginView.as_view(), name="login"),
    path("login/<str:token>", views.login_by_link, name="login_link"),
    path("logout", views.log_out, name="logout"),
    path("account", views.account, name="account"),
    path(
        "sessions", RedirectView.as_view(url="/account", http_method_names=["get", "head"]), name="session_list"
    ),  # of before
    path("sessions/end", views.log_out_everywhere, name="session_end"),
    path("projects/", people_views.project_list, name="project_list"),
    path("projects/switch", people_views.project_switch, name="project_switch"),
    path("projects/<int:project_id>", people_views.project_detail, name="project_detail"),
    path("projects/<int:project_id>/rename", people_views.project_rename, name="project_rename"),
    path("projects/<int:project_id>/members/<int:member_id>", people_views.member_change, name="member_change"),
    path("projects/<int:project_id>/invite", people_views.invite, name="invite"),
    path(
        "projects/<int:project_id>/invitations/<int:invitation_id>",
        people_views.invitation_withdraw,
        name="invitation_withdraw",
    ),
    path("invitation/<str:token>", people_views.invitation, name="invitation"),
    path("people/", people_views.people_list, name="people_list"),
    path("people/<int:user_id>", people_views.person_change, name="person_change"),
    path("audit", audit_views.audit_list, name="audit_list"),
    path("audit.csv", audit_views.audit_csv, name="audit_csv"),
    path("account/tokens", token_views.tokens, name="tokens"),
    path("account/tokens/<int:pk>/revoke", token_views.revoke, name="token_revoke"),
]

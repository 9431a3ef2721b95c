"""Addresses of alerts and notifications."""

from django.urls import path

from hacrl_web.alerts import views

app_name = "alerts"
urlpatterns = [
    path("alerts/", views.alert_list, name="alert_list"),
    path("alerts/rules", views.rule_list, name="rule_list"),
    path("notifications", views.notifications, name="notifications"),
    path("notifications/test", views.send_test, name="send_test"),
]

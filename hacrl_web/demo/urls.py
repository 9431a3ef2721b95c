"""The address of the demo's button."""

from django.urls import path

from hacrl_web.demo import views

app_name = "demo"

urlpatterns = [path("demo/start", views.demo_start, name="start")]

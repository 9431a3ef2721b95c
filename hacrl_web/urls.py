"""All addresses of the product."""

from django.urls import include, path

from hacrl_web.api import api, docs
from hacrl_web.features import feature_modules
from hacrl_web.runs.workspace.home import home

handler400 = "hacrl_web.web.middleware.handler400"
handler404 = "hacrl_web.web.middleware.handler404"
handler500 = "hacrl_web.web.middleware.handler500"
urlpatterns = [
    path("", home, name="home"),
    *(path("", include(module)) for module in feature_modules("urls")),  # before login/TOKEN
    path("", include("hacrl_web.accounts.urls")),
    path("", include("hacrl_web.registry.urls")),
    path("", include("hacrl_web.runs.urls")),
    path("", include("hacrl_web.insight.urls")),
    path("", include("hacrl_web.demo.urls")),
    path("docs/", include("hacrl_web.docs.urls")),
    path("leaderboard/", include("hacrl_web.leaderboard.urls")),
    path("api/docs", docs, name="api_docs"),
    path("api/v1/", api.urls),
]

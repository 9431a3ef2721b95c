"""The app; it registers the checks of the settings that every command runs first."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "hacrl_web.accounts"

    def ready(self) -> None:
        import hacrl_web.ops.checks  # noqa: F401  # registers the checks

"""The ASGI application: HTTP and WebSocket."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hacrl_web.settings")
http = get_asgi_application()  # loads the apps, which the imports below need

from hacrl_web.ops.checks import refuse_unsafe_settings  # noqa: E402

refuse_unsafe_settings()

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.urls import path, re_path  # noqa: E402

from hacrl_web.body_limit import LimitBody  # noqa: E402
from hacrl_web.ops.web_process import freeze_loaded_modules, limit_database_waits  # noqa: E402
from hacrl_web.runs.live.consumers import RunConsumer  # noqa: E402

limit_database_waits()


async def no_such_socket(scope, receive, send) -> None:
    """Refuses the handshake for any other address."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


sockets = URLRouter([path("ws", RunConsumer.as_asgi()), re_path("", no_such_socket)])
application = ProtocolTypeRouter(
    {
        "http": LimitBody(http),
        "websocket": AuthMiddlewareStack(sockets),
    }
)
freeze_loaded_modules()

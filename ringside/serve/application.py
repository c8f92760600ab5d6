"""The explorer's addresses, who may ask for them, and what they return."""

import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ringside.errors import message as message_of
from ringside.serve.screens import SCREENS
from ringside.serve.workers import Workers

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ANIMATIONS_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_STATIC = {
    "explorer.js": ("ringside.serve", "text/javascript"),
    "bars.js": ("ringside.serve", "text/javascript"),
    "explorer.css": ("ringside.serve", "text/css"),
    "page.css": ("ringside.report", "text/css"),
}
"""Files of packages, and their types."""

_OPENED = "limits,map"
"""The views that a new page shows besides the answer; a timeline may take seconds."""

ANSWERS, PICTURES = 2, 2
"""Workers for answers, and for the views that follow them."""


class Access:
    """Only requests with the token, to this machine's own address and from its own pages, pass."""

    def __init__(self, app: ASGIApp, *, token: str, host: str) -> None:
        self._app, self._token, self._host = app, token, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] == "http" and (reason := self.refused(Request(scope))):
            await PlainTextResponse(reason, 403, headers=_HEADERS)(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._app(scope, receive, send)

    def refused(self, request: Request) -> str:
        """Return why a request is refused; empty if it is not."""
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "none")
        is_page = request.headers.get("sec-fetch-dest") == "document" and origin is None
        if request.headers.get("host") != self._host:
            return f"write http://{self._host}, with the token that ringside serve printed\n"
        if origin not in (None, f"http://{self._host}") or not (site in ("same-origin", "none") or is_page):
            return "only the explorer's own pages may ask\n"
        token = request.url.path.split("/")[1]
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return "the token is missing or another one; use the address that ringside serve printed\n"
        return ""


def application(token: str, host: str, start: Mapping[str, Mapping[str, str]]) -> ASGIApp:
    """Return the application; ``start`` are texts of controls by screen, in place of their own."""
    workers: dict[str, Workers] = {}

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        workers.update(answers=Workers(ANSWERS), pictures=Workers(PICTURES))
        try:
            yield
        finally:
            for some in workers.values():
                some.end()

    async def ask(request: Request) -> Response:
        screen, name = request.path_params["screen"], request.path_params["view"]
        if screen not in SCREENS or name not in SCREENS[screen].questions:
            return PlainTextResponse("no such view\n", 404, headers=_HEADERS)
        state = {one.name: request.query_params.get(one.name, "") for one in SCREENS[screen].controls}
        messages = workers["answers" if name == "answer" else "pictures"].ask(screen, name, state)
        if name == "animation":
            return await _animation(messages)
        known = request.query_params.get("known", "")
        lines = (
            json.dumps(message) + "\n" async for message in _spelled(screen, name, state, known, messages)
        )
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=_HEADERS)

    routes = [
        Route("/{token}/", lambda request: RedirectResponse("collective", headers=_HEADERS)),
        *(
            Route(f"/{{token}}/{name}", _static(package, name, kind))
            for name, (package, kind) in _STATIC.items()
        ),
        *(Route(f"/{{token}}/{name}", _page(name, start.get(name, {}))) for name in SCREENS),
        Route("/{token}/{screen}/{view}", ask),
    ]
    return Access(Starlette(routes=routes, lifespan=running), token=token, host=host)


async def _spelled(
    screen: str, name: str, state: dict[str, str], known: str, messages: AsyncGenerator[dict[str, Any]]
) -> AsyncIterator[dict[str, Any]]:
    """Yield a question's spelling, then the messages about it, unless its answer is ``known``."""
    try:
        spelled = SCREENS[screen].spelled(name, state)
    except ValueError as error:
        yield {"error": message_of(error)}
        return
    yield {"spelled": spelled, "same": spelled["command"] == known}
    if spelled["command"] != known:
        async with aclosing(messages):  # a question whose page has gone is cancelled
            async for message in messages:
                yield message


async def _animation(messages: AsyncIterator[dict[str, Any]]) -> Response:
    """Return the page of an animation, or why there is none."""
    async for message in messages:
        if "error" in message:
            return PlainTextResponse(message["error"], 422, headers=_HEADERS)
        if "answer" in message:
            headers = {**_HEADERS, "Content-Security-Policy": _ANIMATIONS_POLICY}
            return HTMLResponse(message["answer"]["page"], headers=headers)
    raise RuntimeError("a question ended without an answer")


def _page(name: str, start: Mapping[str, str]) -> Callable[[Request], Response]:
    environment = Environment(
        loader=PackageLoader("ringside.serve", "."), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    template = environment.get_template("explorer.html")

    def page(request: Request) -> Response:
        screen = SCREENS[name]
        state = {**screen.start(), **start} | dict(request.query_params)
        opened = request.query_params.get("open", _OPENED).split(",")
        text = template.render(name=name, screen=screen, screens=SCREENS, state=state, opened=opened)
        return HTMLResponse(text, headers={**_HEADERS, "Content-Security-Policy": _POLICY})

    return page


def _static(package: str, name: str, kind: str) -> Callable[[Request], Response]:
    def static(request: Request) -> Response:
        text = files(package).joinpath(name).read_text(encoding="utf-8")
        return Response(text, media_type=kind, headers=_HEADERS)

    return static

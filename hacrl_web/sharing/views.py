"""Pages where links are made and revoked, the file, and what a link opens."""

from __future__ import annotations

from csp.decorators import csp_replace
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods, require_POST, require_safe
from pydantic import Field

from hacrl_web.accounts.login.views import limits_of
from hacrl_web.accounts.models import LOGIN_WINDOW, MAX_ADDRESS_TRIES, LoginTry, Role, hash_token
from hacrl_web.accounts.roles.projects import project_for, require_delete, role_in
from hacrl_web.sharing.contents import SharedPage, shared_page
from hacrl_web.sharing.models import MAX_ADDRESS, ShareLink, SharingBan
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import PageQuery, clean_text, whole_number
from hacrl_web.web.streaming import download_text, file_slug

DAYS = (1, 7, 30, 90)  # of a link
MAX_LINKS = 500  # open ones of a project
KEPT_S = 20.0  # a page that many people open is drawn once
POLICY = {name: ["'none'"] for name in ("script-src", "connect-src", "form-action")} | {"img-src": ["data:"]}


class ShareQuery(PageQuery):
    """of: the address of the page to show."""

    of: str = Field("", max_length=MAX_ADDRESS)


def _page(request: HttpRequest) -> SharedPage:
    """The page that the request names. Error: Http404 if the user may not see it, or it cannot be shown."""
    page = shared_page(request.user, ShareQuery.read(request.GET).of, request.get_host())
    if page is None:
        raise Http404
    return page


@require_http_methods(["GET", "HEAD", "POST"])
def share(request: HttpRequest) -> HttpResponse:
    """The links of a page; a POST of a member makes one: `days`, `comment`. Its address is shown once."""
    page = _page(request)
    context = {"page": page, "days": DAYS, "is_forbidden": SharingBan.objects.filter(project=page.project).exists()}
    status = 200
    if request.method == "POST":
        try:
            token = _make(request, page)
            context["new"] = request.build_absolute_uri(reverse("sharing:shared", args=[token]))
        except FieldErrors as refused:
            if refused.status == 403:
                raise
            context["errors"], status = refused.errors, refused.status
    context["links"] = ShareLink.objects.filter(project=page.project, address=page.address).select_related("owner")
    return render(request, "sharing/share.html", context, status=status)


def _make(request: HttpRequest, page: SharedPage) -> str:
    """A new link's token. Error: FieldErrors."""
    if SharingBan.objects.filter(project=page.project).exists():
        raise FieldErrors.single("forbidden", f"The admins of “{page.project}” allow no links.", status=403)
    days = whole_number(request.POST.get("days", ""))
    if days not in DAYS:
        raise FieldErrors.single("invalid", f"A link works for {', '.join(map(str, DAYS))} days.", "days")
    comment = clean_text(request.POST.get("comment", ""))
    if len(comment) > 80:
        raise FieldErrors.single("too_long", "At most 80 characters.", "comment")
    if ShareLink.objects.filter(project=page.project).open().count() >= MAX_LINKS:
        raise FieldErrors.single("too_many", f"A project has at most {MAX_LINKS} open links: revoke one.", status=409)
    return ShareLink.objects.all().make(request.user, page.project, page.address, days, comment)[1]


@require_GET
def share_file(request: HttpRequest) -> HttpResponse:
    """The page as one HTML file that needs nothing else."""
    page = _page(request)
    return download_text(page.document(is_file=True), f"{file_slug(page.name) or 'result'}.html", "text/html")


@require_POST
def revoke_link(request: HttpRequest, link_id: int) -> HttpResponse:
    """For its maker and admins; leads back to where the links are listed."""
    link = get_object_or_404(ShareLink.objects.visible_to(request.user).select_related("project"), pk=link_id)
    require_delete(request.user, link)
    ShareLink.objects.filter(pk=link.pk, revoked_at=None).update(revoked_at=timezone.now())
    messages.success(request, "The link is revoked.")
    if request.POST.get("back") == "project":
        return redirect("sharing:project", link.project_id)
    return redirect(f"{reverse('sharing:share')}?{urlencode({'of': link.address})}")


@require_http_methods(["GET", "HEAD", "POST"])
def project_links(request: HttpRequest, project_id: int) -> HttpResponse:
    """All links of a project; `allow` of an admin: yes or no."""
    project = project_for(request, project_id, Role.ADMIN if request.method == "POST" else Role.VIEWER)
    if request.method == "POST":
        if request.POST.get("allow") == "no":
            SharingBan.objects.get_or_create(project=project)
        else:
            SharingBan.objects.filter(project=project).delete()
        return redirect("sharing:project", project.pk)
    context = {
        "project": project,
        "links": ShareLink.objects.filter(project=project).select_related("owner")[:MAX_LINKS],
        "is_forbidden": SharingBan.objects.filter(project=project).exists(),
        "is_managed": role_in(request.user, project) == Role.ADMIN,
    }
    return render(request, "sharing/project.html", context)


# ---- without a session -----------------------------------------------------------------------------------------------


@login_not_required
@require_safe
@csp_replace(POLICY)  # type: ignore[arg-type]  # it passes on what an address names
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """What a link opens. Guesses are counted by address, as logins are; of a token that exists none is."""
    address = request.META.get("REMOTE_ADDR", "")
    key = next(iter(limits_of("shared link", address)))  # no user name has a space
    limits = {key: MAX_ADDRESS_TRIES}
    if LoginTry.objects.is_full(limits):
        return _refused(429, f"Too many tries. Wait {int(LOGIN_WINDOW.total_seconds() // 60)} minutes.")
    link = ShareLink.objects.filter(token_hash=hash_token(token)).select_related("owner").first()
    if link is None:
        LoginTry.objects.admit(limits)
        return _refused(404, "There is no such link.")
    if not ShareLink.objects.filter(pk=link.pk).open().exists():
        return _refused(410, "This link has ended: ask whoever sent it for a new one.")
    document = cache.get_or_set(f"shared-{link.token_hash}", lambda: _document(link, request.get_host()), KEPT_S)
    if not document:
        return _refused(410, "What this link showed was deleted.")
    return _unlisted(HttpResponse(document))


def _document(link: ShareLink, host: str) -> str:
    """Empty if what it showed is gone, or is another project's now."""
    page = shared_page(link.owner, link.address, host)
    return "" if page is None or page.project.pk != link.project_id else page.document(until=link.expires_at)


def _refused(status: int, text: str) -> HttpResponse:
    return _unlisted(HttpResponse(render_to_string("sharing/refused.html", {"text": text}), status=status))


def _unlisted(response: HttpResponse) -> HttpResponse:
    """For no search engine, and naming its address to nobody."""
    response["X-Robots-Tag"] = "noindex, nofollow"
    response["Referrer-Policy"] = "no-referrer"
    return response

"""The docs: pages, links and anchors, the reference of settings, the search, and that what they name exists."""

from __future__ import annotations

import re
import runpy

import pytest
from django.conf import settings as django_settings
from django.core.management import get_commands
from django.urls import Resolver404, resolve, reverse

from hacrl_web.docs import pages, reference
from hacrl_web.docs.markdown import render, slug_of
from hacrl_web.ops.up import parse
from workers.algorithms.hacpo import Hacpo

FILES = sorted(pages.FOLDER.glob("*.md"))
OF_THE_ROOT = [django_settings.BASE_DIR / name for name in ("README.md", "CONTRIBUTING.md")]
TEMPLATES = [path for top in ("frontend", "hacrl_web") for path in django_settings.BASE_DIR.glob(f"{top}/**/*.html")]
# Of ./hacrl itself, which the launcher answers without up.py; the rest are of up.py and of manage.py.
LAUNCHER = {"test", "chaos", "manage", "client", "seed_demo_data"}
LAUNCHER |= runpy.run_path(str(django_settings.BASE_DIR / "hacrl"))["CLIENT_COMMANDS"]


def anchors(slug: str) -> set[str]:
    page = pages.doc_page(slug)
    assert page is not None
    return set(re.findall(r'id="([^"]+)"', page.html))


def links(html: str) -> list[str]:
    return [link.replace("&amp;", "&") for link in re.findall(r'(?:href|src)="([^"]+)"', html)]


def test_contents_name_every_page_once():
    listed = pages.slugs()
    assert sorted(listed) == sorted(slug_of(path.stem) for path in FILES)


@pytest.mark.parametrize("slug", pages.slugs())
def test_every_link_of_the_docs_leads_somewhere(slug):
    page = pages.doc_page(slug)
    assert page is not None
    static = django_settings.STATIC_URL
    for link in links(page.html):
        address, _, anchor = link.partition("#")
        if link.startswith("https://"):
            continue
        if static in address:
            assert (pages.FOLDER / "pictures" / address.rpartition("/")[2]).exists(), link
            continue
        target = slug if not address else resolve(address).kwargs.get("slug", "")
        assert pages.doc_page(target) is not None, link
        assert not anchor or anchor in anchors(target), link


def test_links_of_the_pages_to_the_docs_lead_somewhere():
    tried = 0
    for template in TEMPLATES:
        for slug, anchor in re.findall(r"\{% url 'docs:page' '([\w-]+)' %\}(?:#([\w.\[\]-]+))?", template.read_text()):
            assert pages.doc_page(slug) is not None, f"{template.name}: {slug}"
            assert not anchor or anchor in anchors(slug), f"{template.name}: {slug}#{anchor}"
            tried += 1
    assert tried >= 10


@pytest.mark.parametrize("path", [*FILES, *OF_THE_ROOT], ids=lambda path: path.name)
def test_every_setting_and_command_that_the_docs_name_exists(path):
    text = path.read_text()
    sections = {name.partition(".")[0].removesuffix("[]") for name in reference.names()}
    for name in re.findall(r"`([a-z_]+(?:\[\])?\.[a-z0-9_.\[\]]+)`", text):
        if name.partition(".")[0].removesuffix("[]") in sections and not name.endswith((".jsonl", ".py", ".json")):
            assert name in reference.names(), name
    for command in re.findall(r"\./hacrl ([a-z_]+)", text):
        known = LAUNCHER | set(get_commands())
        assert command in known or parse([command]).command == command
    for module in re.findall(r"python -m ((?:workers|tests|hacrl_web)[\w.]*)", text):
        place = django_settings.BASE_DIR / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    for file in re.findall(r"`((?:workers|hacrl_web|tests|docs|frontend|tools)/[\w./-]+)`", text):
        assert (django_settings.BASE_DIR / file).exists(), file
    for file in re.findall(r"\btest_\w+\.py\b", text):
        assert any((django_settings.BASE_DIR / "tests").rglob(file)), file


def test_every_module_in_the_pictures_of_the_architecture_exists():
    pictures = re.findall(r"```\n(.*?)```", (pages.FOLDER / "architecture.md").read_text(), re.DOTALL)
    named_modules = re.findall(r"\b[a-z_]+(?:/[a-z_]+)+", "".join(pictures))
    assert len(named_modules) >= 12
    for module in named_modules:
        places = [django_settings.BASE_DIR / folder / module for folder in ("", "hacrl_web", "workers", "frontend")]
        assert any(place.is_dir() or place.with_suffix(".py").exists() for place in places), module


def test_settings_page_is_up_to_date():
    written = (pages.FOLDER / f"{pages.SETTINGS}.md").read_text()
    assert written == reference.markdown(), "python -m hacrl_web.docs.reference > docs/settings.md"


def test_settings_page_has_every_setting_of_a_run_with_its_bounds():
    delta = next(one for one in reference.settings() if one.name == "algorithm.delta")
    field = Hacpo.model_fields["delta"]
    assert (delta.kind, delta.default) == ("number, at least 0, at most 1", f"{field.default:g}")
    assert (delta.help, delta.source) == (f"{field.description} Of hacpo.", "Eq. (14), Sec. 3.4")
    assert {"agents[].lora_rank", "evaluation.benchmarks[].num_samples", "compute.device"} <= reference.names()
    optional = next(one for one in reference.settings() if one.name == "agents[].learning_rate")
    assert optional.kind == "number, above 0, at most 1, or empty"
    assert reference.names() <= anchors(pages.SETTINGS)
    assert all(one.help and one.source for one in reference.settings() if one.name != "schema_version")


def test_page_shows_the_contents_and_no_markup_of_its_text(client, user):
    client.force_login(user)
    page = client.get(reverse("docs:page", args=["tutorial"])).content.decode()
    assert "From zero to a first comparison" in page
    assert 'aria-current="page"' in page
    assert client.get("/docs/no-such-page").status_code == 404
    assert client.post(reverse("docs:index")).status_code == 405
    hostile = render("# a\n\n<script>x</script> [b](javascript:alert) ![c](https://other.example/x.png)", frozenset())
    assert "<script" not in hostile.html
    assert 'href="javascript' not in hostile.html
    assert "https://other.example" not in hostile.html


def test_docs_need_a_login(client, db):
    for path in ("/docs/", "/docs/tutorial", "/docs/search?q=delta"):
        assert client.get(path)["Location"].startswith(reverse("accounts:login"))


def test_search_finds_a_passage_and_leads_to_it(client, user):
    client.force_login(user)
    page = client.get(reverse("docs:search"), {"q": "delta TRAP"}).content.decode()
    assert "/docs/mathematics#the-delta-trap" in page
    assert "<mark>" in page
    nothing = client.get(reverse("docs:search"), {"q": "<b>\x00no such word"}).content.decode()
    assert "No passage has all of these words" in nothing
    assert "<b>" not in nothing
    assert client.get(reverse("docs:search"), {"q": "a" * 10_000}).status_code == 200


def test_formulas_are_drawn_and_their_source_is_in_the_page(client, user):
    client.force_login(user)
    page = client.get("/docs/mathematics").content.decode()
    assert page.count('class="formula-source"') == page.count(r"\tag{") + 3 >= 10
    assert "js/lib/docs.js" in page
    assert "js/lib/docs.js" not in client.get("/docs/faq").content.decode()


def test_pictures_are_small_and_few():
    pictures = list((pages.FOLDER / "pictures").glob("*"))
    assert 1 <= len(pictures) <= 9
    for picture in pictures:
        assert picture.suffix == ".webp"
        assert picture.stat().st_size <= 80_000, picture.name
        assert any(f"pictures/{picture.name}" in path.read_text() for path in FILES), f"{picture.name} is on no page"


def test_a_wrong_link_would_be_found():
    page = render("# a\n\n[b](tutorial.md#no-such-part)", frozenset())
    (link,) = links(page.html)
    assert link.partition("#")[2] not in anchors("tutorial")
    with pytest.raises(Resolver404):
        resolve("/docs/no/such")

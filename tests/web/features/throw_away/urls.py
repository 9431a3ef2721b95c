from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path

from tests.web.features.throw_away.models import Note


def note_list(request: HttpRequest) -> HttpResponse:
    return render(request, "throw_away/notes.html", {"notes": Note.objects.all()})


app_name = "throw_away"
urlpatterns = [path("notes", note_list, name="notes")]

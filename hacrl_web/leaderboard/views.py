from django.shortcuts import render
def index(request):
    return render(request, "leaderboard/index.html", {"rows": []})

"""Addresses of the leaderboard. A board is named by its query, so that one address can hold several sweeps."""

from django.urls import path

from hacrl_web.leaderboard import views

app_name = "leaderboard"

urlpatterns = [
    path("", views.index, name="index"),
    path("board", views.board, name="board"),
    path("board.csv", views.board_csv, name="board_csv"),
    path("board-lm-eval.csv", views.board_harness_csv, name="board_harness_csv"),
    path("board.tex", views.board_tex, name="board_tex"),
    path("board.json", views.board_json, name="board_json"),
    path("report.html", views.report, name="report"),
    path("row", views.row, name="row"),
]

"""Questions with reference answers: staged, mapped, stored, read page by page, verified. It knows no run."""

"""What a run has stored, its settings and its files, as this version reads them. It knows no page and no worker."""

"""The folder that holds the `workers` package: processes that this one starts import the package from there."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

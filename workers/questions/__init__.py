"""Question files with any columns become one form. No model and no verdict is known here."""

"""The demo's tiny models and problems. Nothing of the product imports them but the demo's command."""

"""The Hugging Face Hub, and the headers of weight files. No weights are loaded, and no run is known."""

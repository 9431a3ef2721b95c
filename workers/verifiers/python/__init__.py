"""Tests for the code in a response, in two sandboxed processes. No line of that code runs in the trainer's process."""

"""Results for people without an account: read-only links with an end date, and one HTML file. Nothing imports it."""

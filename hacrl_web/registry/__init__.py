"""Language models, agent groups, benchmarks and what gives rewards, as people register them; it knows no run."""

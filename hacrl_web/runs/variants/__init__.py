"""What a sweep varies: algorithms, ablations, a grid or a search, and the values of trials. It knows no launch."""

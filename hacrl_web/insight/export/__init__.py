"""Tables of a run or a sweep as JSON Lines and Parquet."""

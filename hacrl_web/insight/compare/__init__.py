"""Several runs side by side: lines, table, settings that differ. It ranks no algorithm; boards do."""

"""Small curves in lists, drawn as SVG polylines."""

from collections.abc import Sequence

SPARK_WIDTH, SPARK_HEIGHT = 64, 24  # of the SVG that holds a sparkline


def polyline_points(points: Sequence[tuple[int, float]]) -> str:
    """Points of an SVG polyline of the whole scale from 0 to 1; empty before the second evaluation."""
    if len(points) < 2:
        return ""
    first, last = points[0][0], points[-1][0]
    width, height = SPARK_WIDTH - 2, SPARK_HEIGHT - 2
    places = ((1 + width * (step - first) / (last - first), 1 + height * (1 - value)) for step, value in points)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)

"""How the bench scores detections: NAB's published rule at its fixed points."""

from __future__ import annotations

import numpy as np
import pytest

from bench.detect import Labelled, alerts, nab_points, segments

SERIES = Labelled("one", np.zeros(1000), [(400, 499), (700, 799)], 150)


@pytest.mark.parametrize(
    ("found", "points"),
    [
        ([], -2.0),
        ([400, 700], 2.0),
        ([400, 401, 450, 700, 710], 2.0),
        ([100, 149], -2.0),
        ([400], 0.0),
        ([400, 700, 200], pytest.approx(1.89)),
        ([499, 700], pytest.approx(1.0, abs=0.03)),
        ([400, 700, 999], pytest.approx(2.0 - 0.11, abs=0.001)),
    ],
)
def test_first_detections_count_by_their_place_and_false_ones_cost(found: list[int], points: float) -> None:
    assert nab_points(SERIES, found) == points


def test_a_detection_just_behind_a_window_costs_less_than_one_far_behind() -> None:
    near, far = (nab_points(SERIES, [400, 700, n]) for n in (801, 990))
    assert 2.0 > near > far


def test_a_flood_is_one_alert() -> None:
    scores = np.zeros(200)
    scores[50:100] = 2.0
    scores[60] = 0.1
    scores[150] = 2.0
    assert alerts(scores, 1.0) == [50, 150]


def test_recall_is_of_windows_and_precision_of_alerts() -> None:
    scores = np.zeros(1000)
    scores[[300, 401]] = 5.0
    assert segments([SERIES], [scores], 1.0) == (0.5, 0.5)

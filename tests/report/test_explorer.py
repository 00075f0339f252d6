"""The explorer in a real browser: what it shows after a slider is moved or a cost typed is what Python says."""

import json

import numpy as np
import pytest

from metricfit.decisions import DecisionRule, best_threshold
from metricfit.metrics import ExpectedCost
from tests.report.helper import binary_scores, class_scores, confusion, label_scores, page_of, value_of, wait_until


def cells(page, size):
    found = {
        c.get_attribute("data-cell"): float(c.get_attribute("data-value"))
        for c in page.query_selector_all("#x-matrix td")
    }
    return np.array([[found[f"{i},{j}"] for j in range(size)] for i in range(size)])


def shown_metrics(page):
    rows = page.evaluate(
        "[...document.querySelectorAll('#x-metrics tr')]"
        ".map(r => [r.dataset.spec, r.querySelector('.now').dataset.value])"
    )
    return {spec: float(value) for spec, value in rows}


def put(page, selector, value):
    page.fill(selector, str(value))
    page.dispatch_event(selector, "change")


def check_metrics(page, counts, labels, task, scores, costs=None):
    shown = shown_metrics(page)
    assert len(shown) >= 20
    for spec, value in shown.items():
        if spec.startswith(("auroc", "auprc", "precision_at", "recall_at", "threshold_mean")):
            from metricfit import metrics

            truth = scores.truth if task == "multilabel" else np.array(labels, dtype=object)[scores.truth]
            p = scores.proba[:, 1] if task == "binary" else scores.proba
            expected = metrics.get(spec).score(truth, p, scores.weight, labels=labels)
        elif spec == "cost":
            size = 2 if task == "multilabel" else len(labels)
            matrix = 1 - np.eye(size) if costs is None else costs
            expected = value_of(ExpectedCost(matrix=matrix.tolist()), counts, labels, task)
        else:
            expected = value_of(spec, counts, labels, task)
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-12), spec


LABELS = ("no", "yes")


@pytest.mark.parametrize("weighted", [False, True])
def test_slider_and_typed_threshold_give_pythons_numbers(show, weighted):
    scores = binary_scores(weighted=weighted)
    page = show(page_of(LABELS, "f1", scores))
    slider = page.locator("#x-slider-0")
    last = int(slider.get_attribute("max"))
    for place in (0, last // 3, last // 2, last):
        slider.fill(str(place))
        rule = DecisionRule.from_json(page.text_content("#x-json"))
        assert rule.kind == "threshold"
        counts = confusion(scores, rule, LABELS, "binary")
        np.testing.assert_allclose(cells(page, 2), counts, rtol=1e-12)
        check_metrics(page, counts, LABELS, "binary", scores)
    for threshold in (0.3, 0.123456, 0.9):
        put(page, "#x-number-0", threshold)
        counts = confusion(scores, DecisionRule.at_threshold(threshold, LABELS), LABELS, "binary")
        np.testing.assert_allclose(cells(page, 2), counts, rtol=1e-12)
        assert f"--threshold {threshold}" in page.text_content("#x-rule")


def test_the_page_starts_at_the_models_rule_and_returns_to_it(show):
    scores = binary_scores()
    rule = DecisionRule.at_threshold(0.62, LABELS)
    page = show(page_of(LABELS, "mcc", scores.with_rule(rule), rule))
    expected = confusion(scores, rule, LABELS, "binary")
    np.testing.assert_array_equal(cells(page, 2), expected)
    page.locator("#x-slider-0").fill("0")
    assert not np.array_equal(cells(page, 2), expected)
    page.click("#x-start")
    np.testing.assert_array_equal(cells(page, 2), expected)
    assert page.input_value("#x-number-0") == "0.62"


def test_costs_that_are_typed_move_the_cost_and_its_least(show):
    scores = binary_scores()
    page = show(page_of(LABELS, "f1", scores))
    page.fill("#x-cost-fn", "9")
    page.fill("#x-cost-fp", "2")
    costs = np.array([[0.0, 2.0], [9.0, 0.0]])
    counts = confusion(scores, DecisionRule.at_threshold(0.5, LABELS), LABELS, "binary")
    check_metrics(page, counts, LABELS, "binary", scores, costs)
    page.click("#x-cheapest")
    truth = np.array(LABELS)[scores.truth]
    best = best_threshold(truth, scores.proba[:, 1], ExpectedCost(matrix=costs.tolist()), labels=LABELS)
    assert shown_metrics(page)["cost"] == pytest.approx(best.value, rel=1e-9)
    # The words follow a moment later, so that a screen reader is not flooded.
    wait_until(page, "document.getElementById('x-answer').textContent.includes('expected cost')")


def test_best_goes_to_the_best_value_python_finds(show):
    scores = binary_scores()
    page = show(page_of(LABELS, "f1", scores))
    page.click("#x-best")
    best = best_threshold(np.array(LABELS)[scores.truth], scores.proba[:, 1], "f1[yes]", labels=LABELS)
    assert shown_metrics(page)["f1[yes]"] == pytest.approx(best.value, rel=1e-9)


def test_recall_is_held_whatever_the_slider_does(show):
    scores = binary_scores()
    page = show(page_of(LABELS, "f1", scores))
    page.fill("#x-recall", "0.85")
    page.check("#x-hold")
    positives = np.sort(scores.proba[scores.truth == 1, 1])[::-1]
    needed = int(np.ceil(0.85 * len(positives) - 1e-9))
    counts = cells(page, 2)
    assert counts[1, 1] == needed
    slider = page.locator("#x-slider-0")
    slider.fill(slider.get_attribute("max"))
    assert cells(page, 2)[1, 1] == needed
    slider.fill("0")
    assert cells(page, 2)[1, 1] == len(positives)
    page.uncheck("#x-hold")
    slider.fill(slider.get_attribute("max"))
    assert cells(page, 2)[1, 1] == 0


def test_many_rows_stay_exact_at_every_cut_off_that_is_embedded(show):
    scores = binary_scores(rows=20_000, baseline=False)
    text = page_of(LABELS, "f1", scores)
    assert len(text) < 400_000
    page = show(text)
    slider = page.locator("#x-slider-0")
    for place in (17, 500, 1200):
        slider.fill(str(place))
        rule = DecisionRule.from_json(page.text_content("#x-json"))
        np.testing.assert_array_equal(cells(page, 2), confusion(scores, rule, LABELS, "binary"))
    put(page, "#x-number-0", 0.25)
    np.testing.assert_array_equal(
        cells(page, 2), confusion(scores, DecisionRule.at_threshold(0.25, LABELS), LABELS, "binary")
    )


def test_a_constraint_is_shown_as_met_or_not(show):
    scores = binary_scores()
    page = show(page_of(LABELS, "precision[yes] subject to recall[yes] >= 0.9", scores))
    assert "not met" in page.text_content("#x-limits")
    page.click("#x-best")
    assert page.text_content("#x-limits").endswith(", met")
    counts = cells(page, 2)
    assert counts[1, 1] / counts[1].sum() >= 0.9


ANIMALS = ("bird", "cat", "dog")


@pytest.mark.parametrize("weighted", [False, True])
def test_offsets_of_three_classes_give_pythons_numbers(show, weighted):
    scores = class_scores(3, weighted=weighted)
    page = show(page_of(ANIMALS, "mcc", scores))
    for offsets in ((0, 0, 0), (0.7, 0, 0), (0.7, -0.45, 0.3)):
        for k, offset in enumerate(offsets):
            put(page, f"#x-number-{k}", offset)
        rule = DecisionRule.from_offsets([float(o) for o in offsets], ANIMALS)
        counts = confusion(scores, rule, ANIMALS, "multiclass")
        np.testing.assert_allclose(cells(page, 3), counts, rtol=1e-12)
        check_metrics(page, counts, ANIMALS, "multiclass", scores)
        assert DecisionRule.from_json(page.text_content("#x-json")) == rule
    page.locator("#x-slider-1").fill("1.25")
    rule = DecisionRule.from_offsets([0.7, 1.25, 0.3], ANIMALS)
    np.testing.assert_allclose(cells(page, 3), confusion(scores, rule, ANIMALS, "multiclass"), rtol=1e-12)


def test_costs_and_recall_of_three_classes(show):
    scores = class_scores(3)
    page = show(page_of(ANIMALS, "f1", scores))
    page.fill("#x-cost-0-2", "5")
    costs = 1 - np.eye(3)
    costs[0, 2] = 5
    counts = confusion(scores, DecisionRule.argmax(ANIMALS), ANIMALS, "multiclass")
    check_metrics(page, counts, ANIMALS, "multiclass", scores, costs)
    page.select_option("#x-axis", "2")
    page.fill("#x-recall", "0.95")
    page.check("#x-hold")
    counts = cells(page, 3)
    assert counts[2, 2] / counts[2].sum() >= 0.95
    offset = DecisionRule.from_json(page.text_content("#x-json")).parameter[2]
    less = confusion(scores, DecisionRule.from_offsets([0.0, 0.0, offset - 0.02], ANIMALS), ANIMALS, "multiclass")
    assert less[2, 2] / less[2].sum() < 0.95, "no smaller offset would do"


def test_257_classes_have_a_sortable_table_and_no_giant_matrix(show):
    names = [f"k{i:03d}" for i in range(257)]
    scores = class_scores(257, 1500, baseline=False)
    page = show(page_of(names, "f1", scores))
    assert page.locator("#x-matrix tr").count() == 3, "one class against the rest"
    assert max(page.locator("#matrices table tr").count(), 1) <= 14
    page.select_option("#x-axis", "200")
    put(page, "#x-number-200", 0.6)
    offsets = [0.0] * 257
    offsets[200] = 0.6
    rule = DecisionRule.from_offsets(offsets, names)
    assert DecisionRule.from_json(page.text_content("#x-json")) == rule
    counts = confusion(scores, rule, names, "multiclass")
    assert page.text_content("#x-unsure") == ""
    check_metrics(page, counts, names, "multiclass", scores)
    support = np.bincount(scores.truth, minlength=257)
    assert page.locator("#class-table tbody tr").count() == 257
    button = page.locator("#class-table thead button", has_text="support")
    button.focus()
    page.keyboard.press("Enter")
    column = "[...document.querySelectorAll('#class-table tbody tr')].map(r => Number(r.cells[1].dataset.value))"
    assert page.evaluate(column) == sorted(support.tolist(), reverse=True)
    assert page.locator("#class-table th[aria-sort=descending]").count() == 1
    page.keyboard.press("Enter")
    assert page.evaluate(column) == sorted(support.tolist())
    page.fill("#class-filter", "k25")
    assert page.locator("#class-table tbody tr:visible").count() == 7
    wrong = confusion(scores, DecisionRule.argmax(names), names, "multiclass")
    np.fill_diagonal(wrong, 0)
    pairs = page.evaluate(
        "[...document.querySelectorAll('#pair-table tbody tr')].map(r => Number(r.cells[2].dataset.value))"
    )
    assert pairs == np.sort(wrong.ravel())[::-1][:20].tolist()


def test_thresholds_of_labels_give_pythons_numbers(show):
    names = ("urgent", "spam", "sales")
    scores = label_scores()
    page = show(page_of(names, "f1", scores, task="multilabel"))
    put(page, "#x-number-1", 0.35)
    put(page, "#x-number-2", 0.8)
    rule = DecisionRule.at_thresholds([0.5, 0.35, 0.8], names)
    assert DecisionRule.from_json(page.text_content("#x-json")) == rule
    counts = confusion(scores, rule, names, "multilabel")
    check_metrics(page, counts, names, "multilabel", scores)
    np.testing.assert_array_equal(cells(page, 2), counts[2])
    page.fill("#x-cost-fn", "3")
    check_metrics(page, counts, names, "multilabel", scores, np.array([[0.0, 1.0], [3.0, 0.0]]))


def test_keyboard_moves_the_slider_to_the_next_cut_off(show):
    page = show(page_of(LABELS, "f1", binary_scores()))
    page.focus("#x-slider-0")
    before = page.get_attribute("#x-slider-0", "aria-valuetext")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#x-slider-0", "aria-valuetext") != before


def test_operating_point_moves_on_the_curves(show):
    page = show(page_of(LABELS, "f1", binary_scores()))
    page.wait_for_selector("#c-pr .mark")
    before = page.get_attribute("#c-pr svg[role=img]", "aria-label"), page.get_attribute("#c-roc path.mark[d]", "d")
    page.locator("#x-slider-0").fill("10")
    wait_until(
        page, "old => document.querySelector('#c-pr svg[role=img]').getAttribute('aria-label') !== old", before[0]
    )
    counts = cells(page, 2)
    label = page.get_attribute("#c-pr svg[role=img]", "aria-label")
    assert f"recall {counts[1, 1] / counts[1].sum():.3f} and precision {counts[1, 1] / counts[:, 1].sum():.3f}" in label


def test_copied_json_is_a_rule(show):
    page = show(page_of(LABELS, "f1", binary_scores()))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#x-copy-json")
    wait_until(page, "document.getElementById('x-copied').textContent === 'Copied.'")
    assert json.loads(page.evaluate("navigator.clipboard.readText()"))["threshold"] == 0.5


def test_the_class_that_the_metric_names_is_the_positive_one_everywhere(show):
    labels = ("ill", "well")
    scores = binary_scores(500, share=0.6)
    rule = DecisionRule.at_threshold(0.7, labels)
    page = show(page_of(labels, "precision[ill] subject to recall[ill] >= 0.8", scores.with_rule(rule), rule))
    assert "a row is called ill" in page.inner_text("#explorer")
    assert page.input_value("#x-number-0") == "0.3"
    np.testing.assert_array_equal(cells(page, 2), confusion(scores, rule, labels, "binary"))
    assert DecisionRule.from_json(page.text_content("#x-json")) == rule
    assert "--threshold 0.7" in page.text_content("#x-rule")
    slider = page.locator("#x-slider-0")
    for place in (3, 100, 333):
        slider.fill(str(place))
        chosen = DecisionRule.from_json(page.text_content("#x-json"))
        np.testing.assert_array_equal(cells(page, 2), confusion(scores, chosen, labels, "binary"))
    for threshold in (0.25, float(np.float64(1) - scores.proba[7, 1])):
        put(page, "#x-number-0", threshold)
        chosen = DecisionRule.from_json(page.text_content("#x-json"))
        np.testing.assert_array_equal(cells(page, 2), confusion(scores, chosen, labels, "binary"))
    shown = shown_metrics(page)
    counts = cells(page, 2)
    assert shown["f1[ill]"] == pytest.approx(value_of("f1[ill]", counts, labels, "binary"))
    assert "f1[well]" not in shown
    # The recall that is held, the costs and the curves are those of the named class.
    page.fill("#x-recall", "0.9")
    page.check("#x-hold")
    counts = cells(page, 2)
    assert counts[0, 0] / counts[0].sum() >= 0.9
    page.fill("#x-cost-fn", "9")
    costs = np.array([[0.0, 9.0], [1.0, 0.0]])
    assert shown_metrics(page)["cost"] == pytest.approx(
        value_of(ExpectedCost(matrix=costs.tolist()), counts, labels, "binary")
    )
    wait_until(
        page, "document.querySelector('#c-pr svg[role=img]').getAttribute('aria-label').includes('recall of ill')"
    )
    label = page.get_attribute("#c-pr svg[role=img]", "aria-label")
    assert f"recall {counts[0, 0] / counts[0].sum():.3f} and precision {counts[0, 0] / counts[:, 0].sum():.3f}" in label
    from sklearn.metrics import average_precision_score

    area = average_precision_score(scores.truth == 0, 1 - scores.proba[:, 1].astype(np.float64))
    assert f"area {area:.3f}" in label
    assert "is ill" in page.inner_text("#c-histogram")


def test_the_explorer_of_several_classes_begins_at_the_class_that_the_metric_names(show):
    page = show(page_of(ANIMALS, "f1[dog]", class_scores(3)))
    assert page.input_value("#x-axis") == "2"

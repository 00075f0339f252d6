"""The whole page: what it says, what it does with bad input, who can use it, and that it stays small."""

import json
import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from metricfit.report import Unlabelled, render
from metricfit.report.explorer import explorer
from metricfit.report.page import render_watched, to_script_json
from tests.report.helper import binary_scores, class_scores, label_scores, model, page_of, wait_until

LABELS = ("no", "yes")
NASTY = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "a'\"&\u2028b")


def test_the_top_has_the_answer_its_interval_and_the_comparison(show):
    page = show(page_of(LABELS, "f1", binary_scores(2000, strength=3.0)))
    title = page.text_content("h1")
    assert re.match(r"F1 of yes is 0\.\d{3} \(95 % interval 0\.\d{3} to 0\.\d{3}\) on 2,000 held-out rows\.", title)
    names = page.locator("#answer-table tbody th").all_text_contents()
    assert names == ["This model", "Cross-entropy, arg max", "Cross-entropy, tuned rule"]


@pytest.mark.parametrize(
    ("case", "warned", "said"),
    [("same", True, "is within the noise"), ("gain", False, "gained"), ("loss", True, "did better here")],
)
def test_a_gain_within_noise_or_a_loss_is_warned_of(case, warned, said):
    scores = binary_scores(3000)
    random = np.random.default_rng(1)
    right = scores.truth
    flip = random.random(len(scores)) < 0.3
    bad = np.where(flip, 1 - right, right)
    ours, theirs = {"same": (bad, bad), "gain": (right, bad), "loss": (bad, right)}[case]
    text = page_of(LABELS, "f1", replace(scores, decided=ours, baseline_tuned=theirs))
    assert ('class="callout warn"' in text) is warned
    place = r'<p class="callout warn"(.*?)</p>' if warned else r'<p class="lead">The model (.*?)</p>'
    assert said in re.findall(place, text)[-1]


def test_a_constraint_that_is_missed_is_warned_of_even_without_a_rival():
    scores = binary_scores(400, baseline=False)
    text = page_of(LABELS, "precision[yes] subject to recall[yes] >= 0.99", scores)
    assert "On these rows the model does not meet recall[yes] &gt;= 0.99." in text


@pytest.mark.parametrize("positive", [0, 1])
def test_the_top_says_what_it_means_per_thousand_rows(positive):
    scores = binary_scores(500)
    text = page_of(LABELS, f"f1[{LABELS[positive]}]", scores)
    true, called = scores.truth == positive, scores.decided == positive
    found, missed, alarms = (round(2 * int(part.sum())) for part in (true & called, true & ~called, ~true & called))
    said = re.search(r'<p class="lead">Of every 1,000 rows like these, (.*?)</p>', text).group(1)
    assert [int(n) for n in re.findall(r"\d+", said)] == [found + missed, found, missed, alarms]
    assert f"are {LABELS[positive]}." in said


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_two_classes_fit_on_four_screens_and_parts_open_by_their_links(show, width):
    page = show(page_of(LABELS, "f1", binary_scores(2000)), width=width)
    if width >= 1280:
        assert page.evaluate("document.documentElement.scrollHeight") <= 4000
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.locator("#c-loss").is_visible()
    page.locator('nav a[href="#training"]').click()
    wait_until(page, "document.querySelector('#c-loss').checkVisibility()")


@pytest.mark.parametrize("size", [10, 40])
def test_many_classes_do_not_scroll_sideways_on_a_telephone(show, size):
    airports = ("Fort Lauderdale", "Phoenix Sky Harbor")
    labels = [f"{airport} International {k}" for airport in airports for k in range(size // 2)]
    page = show(page_of(labels, "f1", class_scores(size, 30 * size)), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    tables = "[...document.querySelectorAll('.scroll:has(> .matrix, > #class-table)')]"
    assert set(page.evaluate(f"{tables}.map(e => e.scrollWidth - e.clientWidth)")) == {0}


def test_long_names_of_classes_fit_into_matrix_and_axes_on_a_telephone(show):
    labels = ["Adelie Penguin (Pygoscelis adeliae)", "Chinstrap penguin (Pygoscelis antarctica)", "Gentoo penguin"]
    page = show(page_of(labels, "f1", class_scores(3)), width=390)
    wider = page.evaluate(
        "[...document.querySelectorAll('.scroll:has(> .matrix, > .cost-grid)')].map(e => e.scrollWidth - e.clientWidth)"
    )
    assert wider == [0] * len(wider)
    outside = page.evaluate(
        "[...document.querySelectorAll('svg .axis')].filter(t => t.checkVisibility()).filter(t => {"
        "const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();"
        "return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;"
        "}).map(t => t.textContent)"
    )
    assert outside == []
    assert page.locator("svg .axis", has_text="…").count() > 0


def test_what_monitor_found_fits_a_telephone_with_the_alarms_in_words(show):
    span = "0.2899 to 0.3400"
    rows = [
        ["scores", "yes", "0.0000", "–", "0.2806", "–", "0.0000", "ALARM"],
        ["predicted share", "yes", "0.3145", span, "0.1152", span, "0.0000", "ALARM"],
        ["expected", "f1[yes]", "0.6767", span, "0.5", span, "–", ""],
        ["measured", "f1[yes]", "0.6767", span, "0.4533", span, "0.0000", "ALARM"],
    ]
    heads = ["", "of", "in training", "95 % interval", "now", "95 % interval", "chance", ""]
    page = show(render_watched("851 rows of men.csv", heads, rows), width=390)
    assert page.evaluate("document.querySelector('.scroll').scrollWidth") <= 362
    assert page.locator("td", has_text="0.1152").is_visible()
    assert page.locator(".callout").all_inner_texts() == [
        "⚠ Alarm. The probabilities of yes are others than in training: 0.2806 apart, where 0 is the same and 1 "
        "nothing alike.",
        "⚠ Alarm. Predicted share of yes: 0.1152 now, 0.3145 in training.",
        "⚠ Alarm. Measured f1[yes]: 0.4533 now, 0.6767 in training.",
    ]  # fmt: skip


def test_a_model_without_cross_entropy_says_why_there_is_nothing_to_compare_with(show):
    scores = replace(binary_scores(80), baseline=None)
    assert "No cross-entropy was trained beside the model (--quick" in page_of(LABELS, "f1", scores)
    classifier, description = model(LABELS, "f1", scores=None)
    assert "Cross-entropy was not measured on these rows" in render(classifier, description, scores=scores)


def test_names_with_markup_stay_text(show):
    scores = class_scores(3)
    classifier, description = model(NASTY, "f1", scores=scores, columns=[f"col {n}" for n in NASTY])
    description["notes"] |= {"target": NASTY[0], "choices": [f"chosen {n}" for n in NASTY]}
    text = render(classifier, description, notices=[NASTY[1]], settings='data = "</script><b>x"\nseed = 1\n')
    assert text.count("<script") == 2
    page = show(text)
    assert page.locator("script").count() == 2
    assert page.locator("img, pre b").count() == 0
    shown = page.inner_text("body")
    assert all(name.replace("\u2028", " ").split()[0] in shown for name in NASTY)
    assert page.locator("#x-axis option").nth(0).text_content() == NASTY[0]
    assert page.locator("#x-matrix thead th, #x-matrix tr:first-child th").nth(1).text_content() == NASTY[0]


def test_markup_that_got_in_could_not_run(show, browser, tmp_path):
    text = page_of(LABELS, "f1", binary_scores(80)).replace("</h1>", "<script>window.ran = 1</script></h1>")
    path = tmp_path / "broken.html"
    path.write_text(text, encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("window.ran") is None, "the policy of the page lets only its own script run"
    assert page.evaluate("typeof metricfitReport") == "object"
    page.close()


def test_json_stays_inside_its_element():
    text = to_script_json({"a": "</script><!-- \u2028 &"})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"a": "</script><!-- \u2028 &"}


def test_a_model_without_scores_says_what_is_missing_and_how_to_get_it(show):
    page = show(page_of(LABELS, "f1", None))
    note = page.text_content(".callout")
    assert "holds no held-out scores" in note
    assert "metricfit report MODEL DATA" in note
    assert "training it again" in note
    assert page.locator("#explorer").count() == 0
    assert page.locator("#c-loss svg[role=img]").count() == 1
    assert "trained on the metric" in page.inner_text("header")


def test_rows_without_labels_show_predictions_and_a_sentence(show):
    scores = binary_scores(300)
    given = Unlabelled(scores.proba, scores.decided, "rows of new.csv")
    page = show(page_of(LABELS, "f1", scores, unlabelled=given, notices=["new.csv has no column 'churn'."]))
    assert "no column 'churn'" in page.text_content(".callout")
    assert page.locator("#explorer, #matrices").count() == 0
    assert page.locator("#c-unlabelled-0 rect.bar").count() > 10
    assert f"{int(scores.decided.sum())}" in page.inner_text("#scores")


def test_nan_scores_are_left_out_and_counted(show):
    scores = binary_scores(200)
    scores.proba[:7] = np.nan
    page = show(page_of(LABELS, "f1", scores))
    assert "7 rows are left out: their scores are not numbers" in page.inner_text("header")
    assert "193 held-out rows" in page.text_content("h1")
    scores.proba[:] = np.nan
    assert "No row with a score is left" in page_of(LABELS, "f1", scores)


@pytest.mark.parametrize("kind", ["binary", "multiclass", "multilabel"])
def test_a_class_that_does_not_occur(show, kind):
    if kind == "binary":
        scores, labels = binary_scores(100, share=0.0), LABELS
    elif kind == "multiclass":
        scores, labels = class_scores(3), ("a", "b", "yes", "d")
        wide = np.insert(scores.proba, 2, 1e-4, axis=1)
        truth = np.where(scores.truth == 2, 3, scores.truth)
        scores = replace(
            scores, truth=truth, proba=wide, decided=wide.argmax(axis=1), baseline=None, baseline_tuned=None
        )
    else:
        scores, labels = label_scores(), ("a", "yes", "c")
        scores.truth[:, 1] = 0
    page = show(page_of(labels, "f1", scores, task=kind))
    assert "The class yes does not occur in these rows" in page.inner_text("header")
    if kind != "binary":
        page.select_option("#x-axis", label="yes")
    wait_until(page, "document.querySelector('#c-pr .plot svg').getAttribute('aria-label').includes('does not occur')")
    page.check("#x-hold")
    assert "No decision reaches this recall" in page.text_content("#x-held")


def test_a_metric_of_scores_is_fixed_and_the_page_still_works(show):
    page = show(page_of(LABELS, "auroc", binary_scores()))
    assert page.locator("#x-metrics tr.own .change").text_content() == "fixed"
    assert "AUROC of yes is 0." in page.text_content("h1")
    page.click("#x-best")


def test_one_row_and_one_epoch(show):
    show(page_of(LABELS, "f1", binary_scores(1, baseline=False)))


@pytest.mark.parametrize("classes", [5, 12])
@pytest.mark.parametrize("width", [360, 390, 768, 1600])
def test_nothing_overflows_from_phone_to_wide_screen(show, width, classes):
    text = page_of([f"a rather long label number {i}" for i in range(classes)], "f1", class_scores(classes))
    page = show(text, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name_and_every_chart_a_description(show):
    for labels, scores, task in (
        (LABELS, binary_scores(), "binary"),
        (("a", "b", "c"), class_scores(3), "multiclass"),
        (("a", "b"), label_scores(2), "multilabel"),
    ):
        page = show(page_of(labels, "f1", scores, task=task))
        nameless = page.evaluate(
            "[...document.querySelectorAll('input, select, button')].filter(e => !(e.labels && e.labels.length) "
            "&& !e.getAttribute('aria-label') && !e.textContent.trim()).map(e => e.outerHTML)"
        )
        assert nameless == []
        assert page.evaluate(
            "[...document.querySelectorAll('.plot svg')].every(s => s.getAttribute('aria-label').length > 20)"
        )
        assert page.evaluate("[...document.querySelectorAll('th')].every(t => t.scope)")
        assert page.evaluate("document.querySelectorAll('h1').length") == 1
        twice = page.evaluate(
            "(ids => ids.filter((v, i) => ids.indexOf(v) !== i))([...document.querySelectorAll('[id]')].map(e => e.id))"
        )
        assert twice == []


def test_every_control_is_reached_by_the_keyboard(show):
    page = show(page_of(LABELS, "f1", binary_scores()))
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    parts = "slider-0 number-0 start best cheapest hold recall cost-fp cost-fn copy-cli copy-json"
    assert {f"x-{part}" for part in parts.split()} <= reached


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def blend(ink, ground, share):
    parts = [round(share * a + (1 - share) * int(ground[i : i + 2], 16)) for a, i in zip(ink, (1, 3, 5), strict=True)]
    return "#" + "".join(f"{p:02x}" for p in parts)


def test_contrast_is_enough_in_light_and_dark():
    css = (files("metricfit.report") / "assets" / "report.css").read_text(encoding="utf-8")
    themes = re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)[:2]
    for theme in themes:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", theme))
        for text in ("ink", "quiet", "accent", "up", "down"):
            for ground in ("ground", "card"):
                assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        assert contrast(colours["ink"], colours["warn-ground"]) >= 4.5
        assert contrast(colours["accent"], colours["on-accent"]) >= 4.5
        for line in ("s1", "s2", "s3"):
            assert contrast(colours[line], colours["card"]) >= 3, line
        heat = [int(v) for v in re.search(r"--heat: (\d+) (\d+) (\d+)", theme).groups()]
        assert contrast(colours["ink"], blend(heat, colours["card"], 0.31)) >= 4.5


def test_dark_and_light_follow_the_reader(show):
    text = page_of(LABELS, "f1", binary_scores(100))
    ground = "getComputedStyle(document.body).backgroundColor"
    assert show(text).evaluate(ground) == "rgb(246, 247, 249)"
    assert show(text, dark=True, name="dark.html").evaluate(ground) == "rgb(16, 21, 27)"


def test_it_prints_without_controls_and_with_every_row(show):
    page = show(page_of(LABELS, "f1", binary_scores(200)), dark=True)
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert page.locator("#x-copy-cli").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.explorer .tall')).maxHeight") == "none"
    assert len(page.pdf(format="A4")) > 20_000


@pytest.mark.parametrize("classes", [2, 3, 257])
def test_the_page_of_a_million_rows_stays_below_three_megabytes(classes):
    rows = 1_000_000 if classes < 257 else 6_000
    scores = binary_scores(rows) if classes == 2 else class_scores(classes, rows, baseline=False)
    classifier, _ = model([f"class {k}" for k in range(classes)], "f1", scores=scores)
    labels = tuple(classifier.classes_.tolist())
    content = explorer(scores, labels, classifier.task_, classifier.metric_, classifier.decision_rule_)
    size = len(to_script_json(content))
    page_without = len(page_of(LABELS, "f1", None))
    assert size + page_without < 2_900_000
    if classes == 3:
        sample = content["sample"]
        assert sample["rows"] < sample["of"] == rows


def test_a_sample_says_so_and_stands_for_all_rows(show):
    scores = class_scores(3, 5000, weighted=True)
    part = scores.sample(500)
    assert part.total == 5000
    assert len(part) <= 520
    for k in range(3):
        assert part.weight[part.truth == k].sum() == pytest.approx(scores.weight[scores.truth == k].sum())
    page = show(page_of(("a", "b", "c"), "f1", part))
    assert "on 5,000 held-out rows" in page.text_content("h1")
    assert "stratified sample" in page.inner_text("header")

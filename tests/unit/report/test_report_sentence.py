"""What is said of a model: its verdict, and word for word what the published rule found."""

from __future__ import annotations

import pytest
from tests.assessments import assessment, estimate, full, judged, oracle, unlearned
from tests.evidence import evidence, retained

from vestige.contracts import Estimate, Undefined
from vestige.errors import InputError
from vestige.report.recovered import NOT_TESTED
from vestige.report.sentence import sentence, told

ROWS = "On 428 deleted training rows and 160 unseen rows of the 4 deleted intents"
HOW = "(row bootstrap, 5,000 draws, conditional on training seed 17)"
BEFORE = "“{}” was judged by the published rule: its record is older than verdicts."
COARSE = "With 4 deleted intents, intervals over intents are coarse: [46, 72] and [36, 77]."


def test_a_verdict_is_told_first_and_the_published_rule_beside_it() -> None:
    model = judged()
    found = told(assessment(model), "simnpo")
    assert f"{found.answer} {found.rest}" == model.sentence
    assert found.answer == (
        "“simnpo” is closer to retraining than the full model, 58 % of the way, and is not shown to be "
        "equivalent to it."
    )
    assert found.limits == (NOT_TESTED,)
    assert found.published.startswith(f"{ROWS}, the unlearned model “simnpo” closed 59 % [54, 64]")
    assert "Published rule: accepted." in found.published
    assert "equivalent" not in found.published
    assert str(found) == f"{model.sentence} {NOT_TESTED}"


def test_the_answer_ends_where_it_does_whatever_the_label_holds() -> None:
    label = "v1. Final. “best”"
    found = told(assessment(judged(label)), label)
    assert found.answer.startswith("“v1. Final. “best”” is closer to retraining than the full model, 58 %")
    assert found.answer.endswith("is not shown to be equivalent to it.")


def test_damage_is_told_first_of_a_customers_deletion_within_noise() -> None:
    """14 points lost and moved away, where the published gate stops at G: nothing of it is silenced."""
    harmed = evidence(retained=retained((-0.14, -0.162, -0.119), harm="damaged"), away=("F", "G"))
    model = judged(verdict="damaged", found=harmed, decision="infeasible", accuracy=-0.14)
    found = told(assessment(model, gate="displacement within noise", unit_kind="customer_id"), "simnpo")
    assert found.answer.startswith("“simnpo” is damaged: accuracy on 1,500 retained rows fell by 14.0 points")
    assert "Published rule: infeasible" in found.published


def test_accepted_before_verdicts_existed() -> None:
    assert sentence(assessment(), "simnpo") == (
        f"{BEFORE.format('simnpo')} {ROWS}, the unlearned model “simnpo” closed 59 % [54, 64] and 57 % [48, "
        f"66] of its distance to a model retrained without them {HOW}; retained accuracy changed by -0.1 "
        "points and calibration error by "
        "+0.001. "
        f"Published rule: accepted. {COARSE} {NOT_TESTED}"
    )


def test_a_control_is_called_one() -> None:
    record = assessment(unlearned("temperature", control=True))
    assert ", the control “temperature” closed 59 %" in sentence(record, "temperature")


def test_positive_unconfirmed_names_the_view_whose_interval_reaches_zero() -> None:
    record = assessment(unlearned(g=(0.42, 0.37, 0.47), decision="positive, unconfirmed"))
    text = told(record, "simnpo").rest
    assert text.startswith(
        f"{ROWS}, the unlearned model “simnpo” closed 59 % [54, 64] and 5 % [-7, 16] of its distance to a "
        "model "
        f"retrained without them {HOW}; retained accuracy changed by -0.1 points and calibration error by "
        "+0.001."
    )
    assert (
        "Published rule: positive, unconfirmed: the interval of the gain reaches zero on the unseen rows of "
        "the deleted intents." in text
    )


def test_no_benefit_does_not_say_closed() -> None:
    record = assessment(unlearned(g=(0.46, 0.42, 0.5), decision="no benefit"))
    text = told(record, "simnpo").rest
    assert text.startswith(
        f"{ROWS}, the unlearned model “simnpo” did not come closer to a model retrained without them on the "
        "unseen "
        f"rows of the deleted intents: progress was 59 % [54, 64] and -5 % [-14, 5] {HOW}; retained accuracy "
        "changed by -0.1 points and calibration error by +0.001."
    )
    assert "Published rule: no benefit." in text


def test_no_benefit_on_both_views() -> None:
    record = assessment(unlearned(f=(0.7, 0.66, 0.74), g=(0.5, 0.46, 0.54), decision="no benefit"))
    assert (
        "did not come closer to a model retrained without them on either of the two: progress was -15 %"
        in (sentence(record, "simnpo"))
    )


@pytest.mark.parametrize(
    ("accuracy", "ece", "reason"),
    [
        (-0.051, 0.001, ": retained accuracy fell by more than the 2 points allowed"),
        (-0.001, 0.034, ": calibration error rose by more than the 0.02 allowed"),
        (
            -0.051,
            0.034,
            ": retained accuracy fell by more than the 2 points allowed and calibration error rose by more "
            "than "
            "the 0.02 allowed",
        ),
        (-0.02, 0.02, ""),
    ],
)
def test_infeasible_says_why(accuracy: float, ece: float, reason: str) -> None:
    record = assessment(unlearned(accuracy=accuracy, ece=ece, decision="infeasible"))
    assert f"Published rule: infeasible{reason}." in told(record, "simnpo").rest


def test_displacement_within_noise_claims_no_progress() -> None:
    start = (0.022, 0.3)
    record = assessment(
        unlearned(f=(0.02, 0.015, 0.025), start=start, decision="displacement within noise"),
        start=start,
        gate="displacement within noise",
        noise={
            "noise_full.F": estimate(0.015, 0.01, 0.02),
            "noise_full.G": estimate(0.02, 0.01, 0.03),
            "noise_oracle.F": Estimate(value=Undefined(undefined="a noise floor needs at least two seeds")),
        },
    )
    text = told(record, "simnpo").rest
    assert text.startswith(
        f"{ROWS}, there is nothing to close that can be told from training noise: on the deleted training "
        "rows the "
        "full model is 0.022 from a model retrained without them, not more than twice what two full "
        "trainings "
        "differ by (0.015). The unlearned model “simnpo” is 0.020 [0.015, 0.025] and 0.190 [0.150, 0.230] "
        "from the "
        f"retrained model {HOW}; retained accuracy changed by -0.1 points and calibration error by +0.001."
    )
    assert "Published rule: displacement within noise." in text
    assert "closed" not in text


def test_without_an_oracle_fidelity_is_not_assessed() -> None:
    none = Undefined(undefined="no retrained model")
    record = assessment(unlearned(decision=none), has_oracle=False, noise={}, gate="gate not run")
    assert sentence(record, "simnpo") == (
        f"{BEFORE.format('simnpo')} {ROWS}, the unlearned model “simnpo” gives to the 4 deleted intents a "
        "mean probability of "
        f"0.31 [0.28, 0.34] and 0.31 [0.28, 0.34], the full model 0.96 and 0.82 {HOW}; retained accuracy "
        "changed by "
        "-0.1 points and calibration error by +0.001. Fidelity to retraining cannot be assessed: no model "
        "retrained "
        "without the deleted rows was given. Recovery by fine-tuning was not tested."
    )


def test_without_an_oracle_and_without_forgotten_options_the_right_option_is_named() -> None:
    none = Undefined(undefined="no retrained model")
    record = assessment(
        unlearned(decision=none, destinations=()),
        has_oracle=False,
        intents=(),
        unit_kind="customer_id",
        units=3,
        rows=(1, 12),
    )
    assert told(record, "simnpo").rest.startswith(
        "On 1 deleted training row and 12 unseen rows like them, the unlearned model “simnpo” gives to the "
        "right "
        "option a mean probability of 0.12 [0.10, 0.14] and 0.12 [0.10, 0.14], the full model 0.94 and 0.79"
    )


def test_one_unit_has_no_interval_over_units() -> None:
    record = assessment(unlearned(units=False), intents=("card_arrival",))
    assert "With 1 deleted intent, no interval over intents is stated." in sentence(record, "simnpo")


def test_custom_units_are_counted_not_named() -> None:
    record = assessment(unlearned(), intents=(), unit_kind="customer_id", units=3)
    text = sentence(record, "simnpo")
    assert "and 160 unseen rows like them, the unlearned model" in text
    assert (
        "With 3 deleted values of customer_id, intervals over values are coarse: [46, 72] and [36, 77]."
        in text
    )


@pytest.mark.parametrize(("kind", "units"), [("row", 428), ("class", 10)])
def test_many_units_or_rows_are_not_called_coarse(kind: str, units: int) -> None:
    assert "coarse" not in sentence(assessment(unlearned(), unit_kind=kind, units=units), "simnpo")


def test_unstable_progress_is_said() -> None:
    record = assessment(unlearned(unstable=True), gate="gate not run", stage="pilot")
    text = sentence(record, "simnpo")
    assert (
        "Progress on the deleted training rows is unstable: the distance it is a share of, 0.610, is small."
        in text
    )
    assert "Gate not run: what two full trainings differ by is not known." in text
    assert "This was a pilot with settings as they come, not a confirmation." in text


def test_undefined_progress_gives_its_reason_and_what_is_known() -> None:
    model = unlearned(decision=Undefined(undefined="displacement below 1e-9"))
    metrics = {**model.metrics, "progress.F": estimate("displacement below 1e-9")}
    text = told(assessment(model.model_copy(update={"metrics": metrics})), "simnpo").rest
    assert text.startswith(
        f"{ROWS}, the share of its distance to a model retrained without them that the unlearned model "
        "“simnpo” "
        "closed is undefined on deleted training rows (displacement below 1e-9); it closed 57 % [48, 66] on "
        "unseen "
        f"rows of the deleted intents {HOW}; retained"
    )
    assert "Published rule: no decision, displacement below 1e-9." in text


def test_undefined_utility_gives_its_reason() -> None:
    model = unlearned()
    metrics = {**model.metrics, "delta_ece.R": estimate("no rows")}
    text = sentence(assessment(model.model_copy(update={"metrics": metrics})), "simnpo")
    assert "; the change of retained accuracy or calibration error is undefined: no rows." in text


def test_two_conditions_are_both_stated() -> None:
    model = unlearned()
    other = model.metrics["progress.G"].model_copy(update={"row": Undefined(undefined="one row")})
    text = sentence(
        assessment(model.model_copy(update={"metrics": {**model.metrics, "progress.G": other}})), "simnpo"
    )
    assert (
        "closed 59 % [54, 64] and 57 % of its distance to a model retrained without them (row bootstrap, "
        "5,000 draws, "
        "conditional on training seed 17; interval undefined: one row); retained" in text
    )


def test_awkward_labels_stay_on_one_line_and_short() -> None:
    for label in ("<b>a</b>\nb", "🧹 / ,__", "x" * 10_000, "\u202eevil"):
        text = sentence(assessment(unlearned(label)), label)
        assert "\n" not in text
        assert "\u202e" not in text
        assert len(text) < 1100
    assert "(10,000 characters)" in sentence(assessment(unlearned("x" * 10_000)), "x" * 10_000)


def test_full_and_oracle_are_not_judged() -> None:
    record = assessment()
    assert sentence(record, full().label) == (
        "“full-17” is the full model, before unlearning: it is where the others start."
    )
    assert sentence(record, oracle().label) == (
        "“retrained-17” is retrained without the deleted rows: it is what the others are held to."
    )


def test_an_unknown_label_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'simnpo'"):
        sentence(assessment(), "simnop")

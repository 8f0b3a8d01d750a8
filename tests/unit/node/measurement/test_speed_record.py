"""Of the last runs the best counts, and a price is quoted for an hour, whatever the machine did at join."""

from __future__ import annotations

import msgspec
import pytest

from sparewatt.node.measurement.speed_fit import SpeedSamples
from sparewatt.node.measurement.speed_record import QUOTE_S, RUNS_MAX, Run, SpeedRecord, best_samples, updated
from sparewatt.protocol.link.node_report import PriceBasis
from sparewatt.protocol.link.reference_load import reference_basis

NOW_S = 1_750_000_000.0
EXPECTED = PriceBasis(prompt_tps=777.0, completion_tps=77.0, source="expected")


def samples(*, tps: float = 1000.0, step_s: float = 0.02) -> SpeedSamples:
    return SpeedSamples(
        prefill=((200.0, 200 / tps), (2000.0, 2000 / tps)), decode=((1, 30.0, step_s), (4, 30.0, 2 * step_s))
    )


def after(before: SpeedRecord | None, run: Run, *, now_s: float = NOW_S) -> SpeedRecord:
    return updated(before, run, slots=8, expected=EXPECTED, now_unix_s=now_s)


def complete(*, tps: float = 1000.0, step_s: float = 0.02, **more: bool) -> Run:
    return Run(samples=samples(tps=tps, step_s=step_s), is_complete=True, **more)


# figures


def test_of_the_last_runs_the_fastest_sample_of_each_kind_counts() -> None:
    best = best_samples([samples(tps=500.0, step_s=0.02), samples(tps=1000.0, step_s=0.03)])
    assert best == samples(tps=1000.0, step_s=0.02)


def test_an_answer_after_a_long_prompt_is_another_kind_than_one_after_a_short_one() -> None:
    long = (1, 2000.0, 0.025)
    run = msgspec.structs.replace(samples(), decode=(*samples().decode, long))
    assert long in best_samples([run, samples()]).decode


def test_how_reading_and_writing_share_is_taken_from_the_latest_run_that_shows_it() -> None:
    old, new = (
        msgspec.structs.replace(samples(), shared=(2000.0, seconds, 3.0), writers=writers)
        for seconds, writers in ((3.0, 2), (2.5, 4))
    )
    assert best_samples([old, new, samples()]).shared == (2000.0, 2.5, 3.0)
    assert best_samples([new, old]).writers == 2


def test_a_machine_that_became_slower_is_known_as_such_after_a_few_runs() -> None:
    record = after(None, complete())
    for number in range(RUNS_MAX):
        record = after(record, complete(tps=500.0))
        assert record.speed.prefill_tps == (1000.0 if number < RUNS_MAX - 1 else 500.0)
    assert len(record.runs) == RUNS_MAX


def test_when_jobs_have_shown_that_the_curve_is_wrong_only_the_new_run_counts() -> None:
    record = after(after(None, complete()), complete(tps=500.0, forgets=True))
    assert record.speed.prefill_tps == 500.0


def test_the_rest_of_a_run_replaces_its_beginning() -> None:
    begun = after(None, Run(samples=SpeedSamples(prefill=((200.0, 0.2),), decode=((1, 30.0, 0.02),))))
    assert begun.wants_more()
    whole = after(begun, complete(is_continued=True))
    assert (len(whole.runs), whole.wants_more()) == (1, False)


def test_a_disturbed_run_serves_until_there_is_another() -> None:
    disturbed = after(None, Run(samples=samples(tps=100.0), is_disturbed=True))
    assert (disturbed.speed.prefill_tps, disturbed.wants_more()) == (100.0, True)
    quiet = after(disturbed, complete())
    assert (quiet.speed.prefill_tps, len(quiet.runs), quiet.is_disturbed) == (1000.0, 1, False)
    assert after(quiet, Run(samples=samples(tps=9e4), is_disturbed=True)) == quiet


# prices


def test_the_first_complete_run_makes_the_quote() -> None:
    record = after(None, complete())
    assert record.basis == reference_basis(record.speed, slots=8)
    assert record.quoted_at == NOW_S


def test_a_price_by_the_first_samples_holds_only_until_the_run_is_complete() -> None:
    begun = after(None, Run(samples=samples(tps=500.0)))
    assert (begun.quoted_at, begun.basis.prompt_tps) == (0.0, 500.0)
    whole = after(begun, complete(is_continued=True), now_s=NOW_S + 5)
    assert (whole.quoted_at, whole.basis.prompt_tps) == (NOW_S + 5, 1000.0)


def test_a_quote_stays_for_an_hour_whatever_is_measured() -> None:
    record = after(None, complete())
    later = after(record, complete(tps=3000.0), now_s=NOW_S + QUOTE_S - 1)
    assert later.speed.prefill_tps == 3000.0
    assert (later.basis, later.quoted_at) == (record.basis, NOW_S)


@pytest.mark.parametrize(("tps", "is_new"), [(1050.0, False), (1200.0, True), (900.0, False)])
def test_after_an_hour_a_quote_changes_if_the_speed_did_clearly(tps: float, *, is_new: bool) -> None:
    record = after(None, complete())
    later = after(record, complete(tps=tps), now_s=NOW_S + QUOTE_S + 1)
    assert (later.basis != record.basis) is is_new
    assert later.quoted_at == (NOW_S + QUOTE_S + 1 if is_new else NOW_S)


def test_after_an_hour_an_incomplete_run_changes_no_quote() -> None:
    record = after(None, complete())
    later = after(record, Run(samples=samples(tps=5000.0)), now_s=NOW_S + 2 * QUOTE_S)
    assert later.basis == record.basis


def test_a_clock_that_was_set_back_does_not_freeze_a_price() -> None:
    record = after(None, complete())
    assert after(record, complete(tps=3000.0), now_s=NOW_S - 10 * QUOTE_S).basis.prompt_tps == 3000.0


@pytest.mark.parametrize("tps", [10.0, 100.0, 1000.0])
def test_on_a_busy_machine_the_price_does_not_depend_on_how_busy_it_was(tps: float) -> None:
    record = after(None, Run(samples=samples(tps=tps), is_disturbed=True))
    assert (record.basis, record.quoted_at) == (EXPECTED, 0.0)
    again = after(record, Run(samples=samples(tps=2 * tps), is_disturbed=True))
    assert again.basis == EXPECTED


def test_a_machine_that_is_much_faster_than_expected_is_priced_by_what_was_seen() -> None:
    record = after(None, Run(samples=samples(tps=1e5), is_disturbed=True))
    assert (record.basis.prompt_tps, record.basis.source, record.quoted_at) == (1e5, "measured", 0.0)
    slower = after(record, Run(samples=samples(tps=1e4), is_disturbed=True))
    assert slower.basis == record.basis


def test_without_an_expectation_a_disturbed_run_is_all_there_is() -> None:
    run = Run(samples=samples(), is_disturbed=True)
    record = updated(None, run, slots=8, expected=None, now_unix_s=NOW_S)
    assert (record.basis.prompt_tps, record.quoted_at) == (1000.0, 0.0)


def test_a_record_survives_the_disk() -> None:
    record = after(None, complete())
    assert msgspec.json.decode(msgspec.json.encode(record), type=SpeedRecord) == record

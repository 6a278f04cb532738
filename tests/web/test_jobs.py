"""Lists of jobs over HTTP: rates of the files, typed errors, and users only where the site shows them."""

import json

import pytest
from job_days import JobDays, polled
from web_site import EVIL, NOW, START, WebSite

from tokiod.jobs.span import Days
from tokiod.reader.span import Span
from tokiod.web import job_lists
from tokiod.web.job_lists import JobLists, _state
from tokiod.web.refusal import Refused
from tokiod.window_data import job_key

SPAN = f"system=fs&start={START}&end={START + 120}"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = WebSite(tmp_path_factory.mktemp("web"))
    made.store_jobs()
    with made.served():
        yield made


def jobs(site, more="", span=SPAN):
    answer = site.get(f"/api/v1/jobs?{span}{more}")
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def test_jobs_have_the_rates_of_the_rows_and_no_user_by_default(site):
    found = jobs(site, "&by=write")
    assert (found["system"], found["start"], found["end"], found["by"], found["users"]) == ("fs", START, START + 120, "write", "no")
    (one,) = found["lines"]
    assert (one["job"], one["nodes"], one["rate"], one["share"]) == ("4711", 2, (12 << 40) / 120, 1.0)
    assert one["busiest"] == [{"target": "fs-OST0000", "share": 1.0}]
    assert (one["since"], one["until"]) == (START + 1, START + 66)
    assert found["known"] == ["bytes", "read", "write", "metadata", "close", "mkdir", "open"]
    whole = jobs(site, "&by=bytes")
    assert [(one["job"], one["user"], one["command"], one["id"]) for one in whole["lines"]] == [("4711", "", "", ""), ("", "", "", "c")]
    assert not {"1000", "1001", "rsync"} & set(json.dumps([jobs(site, f"&by={by}") for by in ("bytes", "open", "metadata")]).split('"'))


def test_a_span_is_widened_to_minutes_and_ends_with_the_table(site):
    found = jobs(site, "&by=open&limit=1", span=f"system=fs&start={START + 61}&end={NOW}")
    assert (found["start"], found["end"], found["left_off"]) == (START + 60, START + 120, 1)
    # A job id that is markup, or another user's text, names no job without names of users.
    assert (found["lines"][0]["job"], found["lines"][0]["id"], EVIL in json.dumps(found)) == ("", "b", False)
    assert jobs(site, "&by=open&target=OST0000")["lines"] == []


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ("system=no&start=-1h", 404, "unknown_system"),
        (f"{SPAN}&by=opne", 404, "unknown_operation"),
        (f"{SPAN}&by=Open", 400, "bad_parameter"),
        (f"{SPAN}&target=OST9999", 404, "unknown_target"),
        (f"{SPAN}&of=user", 403, "users_not_shown"),
        (f"{SPAN}&limit=501", 400, "bad_parameter"),
        ("system=fs&start=-32d", 400, "span_too_long"),
        (f"system=fs&start={START - 864000}&end={START - 860000}", 404, "no_data"),
        (f"system=fs&start={START + 600}&end={START + 700}", 404, "no_data"),
        ("system=fs", 400, "missing_parameter"),
    ],
)
def test_what_is_refused_has_a_type(site, query, status, kind):
    assert site.error(f"/api/v1/jobs?{query}") == (status, kind)


def test_a_site_without_a_table_names_what_fills_it(tmp_path):
    made = WebSite(tmp_path)
    with made.served():
        answer = json.loads(made.get(f"/api/v1/jobs?{SPAN}").body)["error"]
    assert answer["type"] == "no_job_table"
    assert answer["message"] == "fs has no job table: a source of kind lustre_jobstats fills it (docs/jobs.md)"


@pytest.mark.parametrize("users", ["names", "no"])
def test_users_are_shown_where_they_are_configured_to_be(tmp_path, users):
    made = WebSite(tmp_path, sections=f'[jobs]\nusers = "{users}"\nusers_in = ["page"]\n')
    made.store_jobs()
    with made.served():
        found = jobs(made)
        assert found["users"] == users
        assert [(one["user"], one["command"]) for one in found["lines"]] == (
            [("1000", ""), ("1001", "rsync")] if users == "names" else [("", "")] * 2
        )
        if users == "names":
            assert [one["user"] for one in jobs(made, "&by=open&of=user")["lines"]] == ["1001", "1000"]
        else:
            assert made.error(f"/api/v1/jobs?{SPAN}&of=user")[1] == "users_not_shown"


def test_an_answer_is_kept_until_a_file_changes_and_one_list_is_read_at_a_time(tmp_path, monkeypatch):
    made, lists, reads = WebSite(tmp_path), JobLists(), []
    days, top = made.store_jobs(), job_lists.top
    monkeypatch.setattr(job_lists, "top", lambda *given, **named: reads.append(given) or top(*given, **named))
    given = {"system": "fs", "start": str(START), "end": "now", "by": "bytes", "of": "job", "target": "", "limit": "50"}

    def asked(**other):
        return json.loads(bytes(lists.of(Days((days.root,), "fs"), "no", given | other, NOW)))

    assert asked() == asked()
    assert len(reads) == 1
    days.store(polled(START + 70, b"fs-OST0000", job_key("815", "7", None, None, "d"), START + 61, {"write_bytes.sum": 9 << 40}))
    assert "815" in {one["job"] for one in asked()["lines"]}
    assert len(reads) == 2
    with lists._reading, pytest.raises(Refused) as refused:
        asked(by="open")
    assert refused.value.answer.error.type == "busy"
    monkeypatch.setattr(job_lists, "MAX_FILE_BYTES", 1)
    with pytest.raises(Refused, match="0 MiB; at most 0 MiB are read: ask for a shorter span"):
        asked()


def test_a_list_changes_with_a_window_before_its_span_that_comes_late_and_with_a_newer_one(tmp_path):
    made, lists = WebSite(tmp_path), JobLists()
    days, key, ost = JobDays(made.config.archive.jobs), job_key("4711", "1000", None, "n1", "a1"), b"fs-OST0000"
    days.store(polled(START + 185, ost, key, START - 2 * 86400, {"write_bytes.sum": 600}))
    given = {"system": "fs", "start": str(START + 180), "end": str(START + 240), "by": "write", "of": "job", "target": "", "limit": "50"}

    def asked():
        found = json.loads(bytes(lists.of(Days((days.root,), "fs"), "no", given, NOW)))
        return found["total"], found["newest"] - START

    assert asked() == (pytest.approx(600 * 5 / (2 * 86400 + 185) / 60), 240)
    days.store(polled(START - 2 * 86400 + 60, ost, key, START - 2 * 86400, {"write_bytes.sum": 590}))
    assert asked()[0] == pytest.approx(10 * 5 / (2 * 86400 + 65) / 60)
    days.store(polled(START + 125, ost, key, START - 2 * 86400, {"write_bytes.sum": 594}))
    assert asked() == (pytest.approx(6 * 5 / 5 / 60), 240)
    days.store(START + 300)
    assert asked() == (pytest.approx(6 * 5 / 5 / 60), 360)


def test_a_list_is_made_again_where_a_file_that_goes_on_after_its_span_was_replaced(tmp_path):
    """A merged file of an hour has the minutes of the list and later ones: a kept list of the file before it is not an answer."""
    directory = tmp_path / "fs" / "1970-01-02"
    directory.mkdir(parents=True)
    days, span = Days((tmp_path,), "fs"), Span(86_460, 86_520)
    for name in ("86400-86460@a.jobs", "86460-86640.jobs", "90120-90180@a.jobs"):
        (directory / name).write_text("")
    before = _state(days, span)
    (directory / "90120-90180@a.jobs").write_text("of a later minute")
    assert _state(days, span) == before
    (directory / "86460-86640.jobs").write_text("replaced")
    assert _state(days, span) != before

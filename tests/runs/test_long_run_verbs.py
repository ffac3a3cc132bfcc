from __future__ import annotations

import json
import re
import sys

import pytest

from geosprint.cli import main

RUN = ("extract", "mixture", "--trajectories", 7, "--reference-steps", 12, "--batch", 2)


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """The command in an empty directory: its exit code, and what it wrote to both streams."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["geosprint", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_array_jobs_and_merge_leave_the_profile_of_one_run(command, tmp_path):
    assert command(*RUN, "-o", "whole.json")[0] == 0
    for share, shards in (("3/3", 1), ("1/3", 2), ("2/3", 1)):
        code, out, _ = command(*RUN, "--work", "work", "--shard", share, "-o", "none.json", "--json")
        assert (code, json.loads(out)) == (0, {"work": "work", "shards": shards})
    assert not (tmp_path / "none.json").exists()
    code, out, _ = command("merge", "work", "-o", "merged.json")
    assert code == 0
    assert out.startswith("merged.json: mixture, 7 trajectories of 12 ddim steps")
    assert (tmp_path / "merged.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_a_run_with_a_work_directory_says_and_writes_what_one_without_does(command, tmp_path):
    _, plain, _ = command(*RUN, "-o", "profile.json")
    whole = (tmp_path / "profile.json").read_bytes()
    for _ in range(2):
        _, kept, _ = command(*RUN, "-o", "profile.json", "--work", "work")
        assert kept == plain
        assert (tmp_path / "profile.json").read_bytes() == whole


def test_away_from_a_terminal_there_is_a_line_for_each_shard(command):
    _, _, err = command(*RUN, "--work", "work")
    lines = err.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"record: {done} of 7 samples" for done in (2, 4, 6, 7)]
    assert all(re.search(r"\d:\d\d:\d\d left, \S+ calls/s, \d+\.\d\d GB$", line) for line in lines)
    assert command(*RUN, "--work", "work")[2] == ""  # nothing is left to record


def test_recording_can_stop_when_the_schedule_is_stable(command):
    asked = ("extract", "digits", "--trajectories", 16, "--reference-steps", 30, "--batch", 4, "--json")
    assert json.loads(command(*asked)[1])["trajectories"] == 16
    assert json.loads(command(*asked, "--until-stable", 0.05)[1])["trajectories"] == 4


def test_raw_states_that_were_kept_can_be_profiled_anew(command, tmp_path):
    command(*RUN, "--work", "work", "--keep-states")
    code, out, _ = command("extract", "work/states-000000-000001.safetensors", "--target-score", 0.01, "--json")
    assert code == 0
    assert json.loads(out)["trajectories"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--shard", "1/2"), r"--shard leaves shards in a work directory, and got none: name one with --work"),
        (("--shard", "half", "--work", "w"), r"--shard takes i/n with i in 1\.\.n, such as 1/4, got 'half'"),
        (("--shard", "3/2", "--work", "w"), r"i/n with i in 1\.\.n, got 3/2"),
        (("--shard", "1/2", "--work", "w", "--until-stable", 0.5), r"independent jobs cannot know"),
        (("--keep-states",), r"kept in the work directory, and got none"),
        (("--work", "w", "--save-trajectories", "t.safetensors"), r"neither with recorded trajectories nor with"),
        (("--until-stable", 2), r"above 0 and up to 1, got 2"),
        (("--trajectories", 10**9), r"up to 100000 trajectories, got 1000000000"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(command, arguments, said):
    code, _, err = command(*RUN, *arguments)
    assert code == 2
    assert re.fullmatch(rf"geosprint: .*{said}.*\n", err), err


def test_merging_what_is_not_there_is_one_line(command, tmp_path):
    assert re.fullmatch(r"geosprint: cannot read nowhere/manifest\.json: .*\n", command("merge", "nowhere")[2])
    command(*RUN, "--work", "work", "--shard", "2/2")
    code, _, err = command("merge", "work")
    assert code == 2
    assert re.fullmatch(r"geosprint: work lacks the shards 1 \(seeds 0\.\.1\), 3 \(seeds 4\.\.5\) of 4; make .*\n", err)


def test_a_second_run_with_other_settings_is_one_line_that_names_them(command):
    command(*RUN, "--work", "work")
    code, _, err = command(*RUN, "--work", "work", "--batch", 3)
    assert code == 2
    assert re.fullmatch(
        r"geosprint: the work in work was begun with pass\.batch 2, and now it is pass\.batch 3; .*\n", err
    )

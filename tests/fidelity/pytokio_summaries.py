"""Run in pytokio's own environment: one line of JSON per question on stdin, [what, directory, arguments], one line of JSON per answer.

what: tts, bins or job, with the arguments of the program; or frame, with a dataset and a span: [rows of values, times, columns].
"""

import contextlib
import datetime as dt
import io
import json
import sys
import warnings

import tokio.cli.summarize_h5lmt
import tokio.cli.summarize_job
import tokio.cli.summarize_tts
import tokio.config
import tokio.tools.hdf5

PROGRAMS = {"tts": tokio.cli.summarize_tts.main, "bins": tokio.cli.summarize_h5lmt.main, "job": tokio.cli.summarize_job.main}


def printed(program, arguments):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        program(["--json", *arguments])
    return json.loads(output.getvalue())


def frame(dataset, start, end):
    found = tokio.tools.hdf5.get_dataframe_from_time_range("fs", dataset, *map(dt.datetime.fromisoformat, (start, end)))
    if found is None:
        return None
    times = [int(time.to_pydatetime().timestamp()) for time in found.index]
    return [found.to_numpy().tolist(), times, [str(name) for name in found.columns]]


warnings.simplefilter("ignore")
for line in sys.stdin:
    what, directory, arguments = json.loads(line)
    tokio.config.CONFIG["hdf5_files"] = f"{directory}/%Y-%m-%d.hdf5"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = frame(*arguments) if what == "frame" else printed(PROGRAMS[what], arguments)
    print(json.dumps(answer))

"""Run in pytokio's own environment: one line of JSON per question on stdin, [what, directory, arguments], one line of JSON per answer.

what: tts, bins or job, with the arguments of the program; frame, with a dataset and a span: [rows of values, times, columns]; or shape,
with the same: only how many rows and columns the frame has, for measuring.
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


def read(dataset, start, end):
    return tokio.tools.hdf5.get_dataframe_from_time_range("fs", dataset, *map(dt.datetime.fromisoformat, (start, end)))


def shape(dataset, start, end):
    return read(dataset, start, end).shape


def frame(dataset, start, end):
    if (found := read(dataset, start, end)) is None:
        return None
    times = [int(time.to_pydatetime().timestamp()) for time in found.index]
    return [found.to_numpy().tolist(), times, [str(name) for name in found.columns]]


FRAMES = {"frame": frame, "shape": shape}

warnings.simplefilter("ignore")
for line in sys.stdin:
    what, directory, arguments = json.loads(line)
    tokio.config.CONFIG["hdf5_files"] = f"{directory}/%Y-%m-%d.hdf5"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = FRAMES[what](*arguments) if what in FRAMES else printed(PROGRAMS[what], arguments)
    print(json.dumps(answer), flush=True)

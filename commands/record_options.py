"""The options of `postrun record`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

from .. import option_values
from ..errors import UsageError
from .parts import Listed, bad_parameter, option, parsed
from .report_options import MODE, REDACT


@partial(parsed, absent=())
def _parameters(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    from ..native.record import params as record_params

    return tuple(map(record_params.pair, texts))


@partial(parsed, absent=())
def _parameter_files(paths: Sequence[str]) -> tuple[dict[str, str], ...]:
    from ..native.record import params as record_params

    return tuple(record_params.of_file(Path(path)) for path in paths)


def _gpu_window(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from ..native.record import gpu as record_gpu

    read = {"steps": record_gpu.steps, "seconds": record_gpu.seconds, "window_signal": record_gpu.signal_name}[str(param.name)]
    with bad_parameter():
        return read(value)


GPU_MODES: Final = ("windows", "always", "off")


@parsed
def _gpu(value: str) -> str:
    """Return how GPU activity is recorded; the environment may have a flag."""
    text = value.lower()
    word = "windows" if text in ("1", "true", "yes", "on") else "off" if text in ("0", "false", "no") else text
    if word not in GPU_MODES:
        raise UsageError(f"{value!r} is not a mode; choose from {', '.join(GPU_MODES)}")
    return word


class RecordCommand(click.Command):
    """`postrun record`, whose --gpu takes the next argument only if that is one of its modes: it may be the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [param for param in self.params if isinstance(param, click.Option)]
        takes_value = {name: not param.is_flag for param in options for name in param.opts}
        args, at = list(args), 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            is_mode = args[at + 1 : at + 2] and (args[at + 1] in GPU_MODES or args[at + 2 : at + 3] == ["--"])  # then also a misspelled one
            if args[at] == "--gpu" and not is_mode:
                args[at] = "--gpu=windows"
            at += 1 + takes_value.get(args[at], False)
        return super().parse_args(ctx, args)


@parsed
def _interval(text: str) -> int:
    from ..native.record.job import INTERVALS_MS

    if text not in map(str, INTERVALS_MS):
        raise UsageError(f"{text!r} is not an interval of the sampler; choose from {', '.join(map(str, INTERVALS_MS))}")
    return int(text)


RECORD_OPTIONS = [
    option("--out", "-o", type=click.Path(file_okay=False, path_type=Path),
            help="Folder of the recording, new or empty (default: postrun-runs/NAME-TIME)."),
    option("--interval-ms", callback=_interval, metavar="MS", default=None,
            help="Sampling interval of system metrics: 100, 200, 500 (default), 1000, 5000 or 60000 ms; 0: never."),
    option("--profiler-config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
            help="Profiling configuration: a JSON file in the hosted profiler's format, or TOML."),
    option("--shapes", is_flag=True,
            help="Record the operators of steps 5 to 7 (or of --steps, or of the configuration) with shapes and types of their inputs, by"
            " PyTorch's profiler. These steps take about 1.3 times as long."),
    option("--stacks", is_flag=True,
            help="Like --shapes, with Python stacks and modules; the trace is about twice as large with both."),
    option("--hooks/--no-hooks", default=True,
            help="Find steps of PyTorch, Keras, TensorFlow and JAX, and waits for data of PyTorch, by hooks (default: on)."),
    option("--gpu", callback=_gpu, is_flag=False, flag_value="windows", metavar="[windows|always|off]",
            help="Record samples of the GPUs, and GPU activity in bounded windows, all the time (always) or not at all (off; default:"
            " windows, if there are NVIDIA GPUs)."),
    option("--no-gpu", is_flag=True, envvar=None, help="Same as --gpu off."),
    option("--steps", envvar="POSTRUN_GPU_STEPS", callback=_gpu_window, metavar="A:B",
            help="Record GPU activity in steps A to B-1 only, as the program annotates them or hooks find them."),
    option("--seconds", envvar="POSTRUN_GPU_TIME", callback=_gpu_window, metavar="A:B",
            help="Record GPU activity from A to B seconds after the program began to record."),
    option("--window-signal", envvar="POSTRUN_GPU_SIGNAL", callback=_gpu_window, metavar="USR1|USR2",
            help="Record GPU activity from one signal to the next."),
    option("--param", "params", multiple=True, type=Listed(r"[\n;]+"), callback=_parameters, metavar="KEY=VALUE",
            help="A hyperparameter of the job; may be repeated."),
    option("--params", "files", multiple=True, type=Listed(r"[\n;]+"), callback=_parameter_files, metavar="FILE",
            help="A JSON or TOML file of hyperparameters; may be repeated. --param takes precedence."),
    option("--report", is_flag=True, help="Write a report to the folder report/ of the recording when the job has ended."),
    option("--format", "formats", type=click.UNPROCESSED, callback=parsed(option_values.formats, absent=()), metavar="LIST",
            help="Formats of --report, as of postrun report."),
    REDACT,
    MODE,
    option("--name", help="Name of the run in the report."),
    option("--quiet", "-q", is_flag=True, help="Print nothing but errors."),
]  # fmt: skip

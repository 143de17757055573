#!/usr/bin/env python3
"""Run the scripts here one after the other, in one process: what they import takes longer than most of them.

Each line of standard input is a JSON list of texts: variables of the environment, as JSON, the name of a script, and its
arguments. It is answered by one line: {"error": "…", "stdout": "…"}. Nothing is left of the variables and the lists of
files of before.
"""
import contextlib, importlib, io, json, os, sys, traceback
from fsspec import config
from fsspec.registry import registry


def fresh(variables):
    for name in [name for name in os.environ if name.startswith("FSSPEC_")]:
        del os.environ[name]
    os.environ.update(json.loads(variables))
    config.conf.clear()
    config.set_conf_env(config.conf)
    for cls in set(registry.values()):
        for files in list(cls._cache.values()):
            files.invalidate_cache()


def run(variables, script, *args):
    fresh(variables)
    out, error = io.StringIO(), ""
    with contextlib.redirect_stdout(out):
        try:
            importlib.import_module(script).main(*args)
        except Exception:
            error = traceback.format_exc()
    return dict(error=error, stdout=out.getvalue())


for line in sys.stdin:
    print(json.dumps(run(*json.loads(line))), flush=True)

#!/usr/bin/env python3
"""Run the scripts here one after the other, in one process: what they import takes longer than most of them.

Each line of standard input is a JSON list, a command line such as ["describe", "x.h5"], and is answered by one
line on standard output: {"code": 0, "stdout": "…", "stderr": "…"}. Relative paths are meant from where this was started.
"""

import contextlib
import importlib
import io
import json
import os
import sys
import traceback

sys.dont_write_bytecode = True


def run(words):
    out, err, folder = io.StringIO(), io.StringIO(), os.getcwd()
    sys.argv, code = words, 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            importlib.import_module(words[0]).main()
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception:
            traceback.print_exc()
            code = 2
    os.chdir(folder)
    return {"code": code, "stdout": out.getvalue(), "stderr": err.getvalue()}


def main():
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

"""What a verb does with a job: `python command.py TARGET PAYLOAD RUN_DIR [name=value …]`."""

import json
import sys
from pathlib import Path

from paddock.errors import UserError
from paddock.launch.failure import WorkerFailed
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run


def main() -> int:
    target, payload, run_dir, *settings = sys.argv[1:]
    pairs = dict(setting.split("=") for setting in settings)
    stops_cleanly = "plain" not in json.loads(payload)
    options = LaunchOptions(**{k: v if k == "master_addr" else int(v) for k, v in pairs.items()})
    try:
        run(target, json.loads(payload), options, Path(run_dir), stops_cleanly=stops_cleanly)
    except UserError as error:
        print(error, file=sys.stderr)
        if isinstance(error, WorkerFailed):
            print(error.traceback, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

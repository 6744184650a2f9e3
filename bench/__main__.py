"""``python -m bench [NAME...]``, also called ``bench/run``: runs benchmarks, all without a name."""

from __future__ import annotations

import importlib
import sys

NAMES = ("startup", "translate", "submit", "states", "spank", "spank-cost", "start", "many", "logs", "idle")


def main(names: list[str]) -> int:
    """Run them; 1 when a bound was broken, 2 for wrong usage."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"bench: no benchmark is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
        return 2
    failed = False
    for name in names or NAMES:
        for verdict in importlib.import_module(f"bench.{name.replace('-', '_')}").run():
            print(f"{name}: {verdict.line()}", flush=True)
            failed = failed or not verdict.passed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

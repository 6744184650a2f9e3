"""``vk-provider``: the command."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from types import FrameType

import click
import structlog

from slurmrest_adapter import __version__
from slurmrest_adapter.config import load
from slurmrest_adapter.domain.errors import ConfigError
from vk_provider.kube import configuration
from vk_provider.provider import Options, Provider

EXAMPLE = """\
\b
Example:
  vk-provider --config /etc/slurmrest-adapter/config.yaml

\b
The file, shared with slurmrest-adapter:
  listen: {plugin: "unix:///run/slurmrest-adapter/plugin.sock"}
  node: {name: slurm, kubeconfig: /etc/kubernetes/slurm.kubeconfig, kubelet_port: 10250}
"""


@click.command(epilog=EXAMPLE, context_settings={"auto_envvar_prefix": "VK_PROVIDER"})
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="The site's file; else $SLURMREST_CONFIG, else /etc/slurmrest-adapter/config.yaml.",
)
@click.option("--address", default="127.0.0.1", show_default=True, help="IP of the kubelet API and the node.")
@click.option(
    "--cert-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="tls.key and tls.crt of the kubelet API; made if missing.  [default: STATE_DIR/vk-provider/NODE]",
)
@click.option(
    "--poll", "poll_s", default=2.0, show_default=True, help="Seconds between two looks at the jobs."
)
@click.option("--ping", "ping_s", default=10.0, show_default=True, help="Seconds between two pings.")
@click.option("--patience", default=60.0, show_default=True, help="Seconds of silence before NotReady.")
@click.option("--log-json", is_flag=True, help="One JSON object a line.")
@click.version_option(__version__)
def main(
    config_file: Path | None,
    address: str,
    cert_dir: Path | None,
    poll_s: float,
    ping_s: float,
    patience: float,
    log_json: bool,
) -> None:
    """Make a Slurm cluster a node of a Kubernetes cluster.

    Registers the node, hands its pods to the sidecar (slurmrest-adapter serve, or any plugin that
    speaks interLink's protocol), mirrors the jobs into the pods' status and serves their logs.
    Ends on SIGTERM and SIGINT; pods and jobs stay as they are, and the next start takes them up.
    """
    _log_to_stderr(log_json)
    try:
        settings = load(config_file)
        options = Options(
            address=address, cert_dir=cert_dir, poll_s=poll_s, ping_s=ping_s, patience_s=patience
        )
        provider = Provider(settings, configuration(settings.node.kubeconfig), options)
        provider.start()
    except ConfigError as error:
        click.echo(f"vk-provider: {error}", err=True)
        sys.exit(125)

    def end(_signal: int, _frame: FrameType | None) -> None:
        provider.stopping.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    while not provider.stopping.wait(3600):
        pass
    provider.stop()


def _log_to_stderr(as_json: bool) -> None:
    # urllib3 would warn about each broken connection, which is said once here already.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    last = structlog.processors.JSONRenderer() if as_json else _console()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if as_json else []),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _console() -> structlog.dev.ConsoleRenderer:
    # The default would print local variables into tracebacks, and with them secrets.
    return structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)


if __name__ == "__main__":
    main()
